"""The table of frameworks and versions in docs/frameworks.md, which a run of the applications writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .application import Application

PAGE = Path(__file__).resolve().parents[3] / "docs/frameworks.md"
BEGIN, END = "<!-- table of frameworks -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Row:
    """A framework of an application that has run."""

    framework: str
    version: str
    which: str
    sites: tuple[str, ...]
    route: str
    ignores: str


def row_of(application: Application, which: str, ignored: list[str]) -> Row | None:
    """Return what the page says of an application; none while it has not named its version."""
    if not application.versions:
        return None
    # The first version is the framework's, the others are those of its server and the like.
    (framework, version), *others = application.versions
    if others:
        version += f" ({', '.join(' '.join(other) for other in others)})"
    sites = tuple(site.name for site in application.sites if site.name != "separate")
    route = application.notes.get("route", "yes" if "route_rules" in sites else "no")
    # A name of several words, where the line `version` has one.
    framework = application.notes.get("framework", framework)
    return Row(
        framework, version, which, sites, route, application.notes.get("ignores", ", ".join(ignored) or "nothing")
    )


def table(rows: list[Row]) -> str:
    """Return the table."""
    lines = [
        "| framework | oldest tested | newest tested | limits were attached | `route` is known | its router ignores |",
        "|---|---|---|---|---|---|",
    ]
    for framework in sorted({row.framework for row in rows}, key=str.lower):
        of_it = [row for row in rows if row.framework == framework]
        versions = {row.which: row.version for row in of_it}
        sites: list[str] = []
        for row in of_it:
            sites += [site for site in row.sites if site not in sites]
        last = of_it[-1]
        names = ", ".join(f"`{site}`" for site in sites)
        newest = versions.get("newest", "")
        cells = [framework, versions.get("oldest", newest), newest, names, last.route, last.ignores]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parts() -> tuple[str, str, str]:
    """Return the page before the table, the table, and the page behind it."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    inside, end, behind = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} needs the lines {BEGIN} and {END}")
    return before + begin + "\n", inside.strip("\n"), "\n" + end + behind


def write(rows: list[Row]) -> None:
    """Write the table into the page."""
    before, _, behind = parts()
    PAGE.write_text(before + table(rows) + behind)


def check(rows: list[Row]) -> str | None:
    """Return why the page is not what the run saw; none when it is."""
    if parts()[1] == table(rows):
        return None
    return f"docs/frameworks.md is not what this run saw; tests/spellings/run --write writes it:\n{table(rows)}"
