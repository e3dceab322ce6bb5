"""Writes texts of the module into other files; ``--check`` only reports whether they are up to date.

These are the table of options at the end of README.md, and the options and docstrings in the stubs.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import polylimit._core
from polylimit import options

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
STUBS = FOLDER / "python" / "polylimit" / "_core.pyi"
HEAD = "| option | kind | allowed | default | what it is for |\n|---|---|---|---|---|\n"
OPTIONS_START = "class _Options(TypedDict, total=False):\n"
OPTIONS_END = "\n# The end of the generated part.\n"
TYPES = {
    "duration": "str | float | timedelta | None",
    "number": "str | float | None",
    "text": "str | None",
    "outage": "_Outage | Mapping[str, _Outage] | None",
}
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def readme() -> str:
    """Return README.md with the rows of the table."""
    rows = ""
    for option in options():
        default = "" if option.default is None else f"`{option.default}`"
        allowed = option.allowed.replace("|", "\\|")
        rows += f"| `{option.name}` | {option.kind} | {allowed} | {default} | {option.about} |\n"
    read = README.read_text(encoding="utf-8")
    return read[: read.index(HEAD)] + HEAD + rows


def stubs() -> str:
    """Return the stubs with the options and the docstrings."""
    read = STUBS.read_text(encoding="utf-8")
    before, rest = read.split(OPTIONS_START)
    _, after = rest.split(OPTIONS_END)
    fields = ""
    for option in options():
        default = "" if option.default is None else f" Default: ``{option.default}``."
        fields += f"    {option.name}: {TYPES.get(option.name, TYPES[option.kind])}\n"
        fields += docstring(f"{option.about} Allowed: {option.allowed}.{default}", "    ")
    fields += "    lease: Mapping[str, str] | None\n"
    fields += docstring("The policies that lease units from Redis: ``auto``, or such as ``100/500ms``.", "    ")
    text = with_docstrings(before + OPTIONS_START + fields + OPTIONS_END + after)
    ruff = [str(Path(sys.executable).parent / "ruff"), "format", "--quiet", "--stdin-filename", str(STUBS), "-"]
    done = subprocess.run(ruff, input=text, stdout=subprocess.PIPE, encoding="utf-8", check=True)  # noqa: S603
    return done.stdout


def with_docstrings(text: str) -> str:
    """Replace the docstrings in the stubs with those of the module."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits = []
    for parent, nodes in parents(ast.parse(text)):
        seen: set[str] = set()
        for node in nodes:
            about = None if node.name in seen else doc_of(parent, node)
            seen.add(node.name)
            if about is None:
                continue
            first = node.body[0]
            # The edit replaces a docstring, or is inserted before the body.
            is_replaced = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            line = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", []))])
            start = starts[line - 1] + (first.col_offset if is_replaced else 0)
            stop = starts[(first.end_lineno or line) - 1] + (first.end_col_offset or 0) if is_replaced else start
            edits.append((start, stop, docstring(about, " " * (node.col_offset + 4))))
    for start, stop, new in sorted(edits, reverse=True):
        before = text[:start].rstrip(" ")
        after = text[stop:] if start == stop else text[stop:].removeprefix("\n")
        text = before + ("" if before.endswith("\n") else "\n") + new + after
    return text


def parents(tree: ast.Module) -> list[tuple[Any, list[Documented]]]:
    """Return the module and its classes, each with the stubs of its members."""
    found: list[tuple[Any, list[Documented]]] = [(polylimit._core, members(tree))]  # noqa: SLF001
    classes = [node for node in members(tree) if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    found.extend((getattr(polylimit._core, node.name), members(node)) for node in classes)  # noqa: SLF001
    return found


def members(node: ast.Module | ast.ClassDef) -> list[Documented]:
    """Return the classes and functions of a module or a class."""
    return [child for child in node.body if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))]


def doc_of(parent: Any, node: Documented) -> str | None:
    """Return the docstring of a stub in the module; ``None`` for special methods."""
    known = getattr(parent, node.name, None)
    if known is None or node.name.startswith("_"):
        return None
    about = known.__doc__
    return inspect.cleandoc(about) if about else None


def docstring(about: str, indent: str) -> str:
    """Return a docstring in the form of source code, with a final line feed."""
    mark = 'r"""' if "\\" in about else '"""'
    lines = [line and indent + line for line in about.splitlines()]
    end = f'\n{indent}"""' if len(lines) > 1 else '"""'
    return indent + mark + "\n".join(lines).removeprefix(indent) + end + "\n"


def main() -> int:
    """Run the program."""
    old = [name for name, wanted in ((README, readme()), (STUBS, stubs())) if name.read_text("utf-8") != wanted]
    if "--check" in sys.argv:
        for path in old:
            sys.stderr.write(f"{path.name} is out of date: run document.py\n")
        return 1 if old else 0
    README.write_text(readme(), encoding="utf-8")
    STUBS.write_text(stubs(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
