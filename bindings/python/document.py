"""Writes the table of options at the end of README.md; ``--check`` only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from polylimit import options

README = Path(__file__).parent / "README.md"
HEAD = "| option | kind | allowed | unless told otherwise | what it is for |\n|---|---|---|---|---|\n"


def table() -> str:
    """Give the rows of the table."""
    rows = ""
    for option in options():
        default = "" if option.default is None else f"`{option.default}`"
        allowed = option.allowed.replace("|", "\\|")
        rows += f"| `{option.name}` | {option.kind} | {allowed} | {default} | {option.about} |\n"
    return rows


def main() -> int:
    """Run the program."""
    read = README.read_text(encoding="utf-8")
    written = read[: read.index(HEAD)] + HEAD + table()
    if "--check" not in sys.argv:
        README.write_text(written, encoding="utf-8")
    elif read != written:
        sys.stderr.write("the table of options in README.md is old: run document.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
