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
        # Which version ends first is chance.
        of_it = sorted((row for row in rows if row.framework == framework), key=lambda row: row.which == "newest")
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


#: Frameworks whose versions are those of the machine or of its system's packages: the page says which the last run had.
_OF_THE_MACHINE = ("caddy", "fetch", "grape", "nginx", "rack", "rails", "sinatra")


def check(rows: list[Row]) -> str | None:
    """Return why the page is not what the run saw; none when it is.

    The repository pins the other versions. The cells about a version are compared where it has run, and the sites where
    both have.
    """
    written = [_cells(line) for line in parts()[1].splitlines()[2:]]
    seen = [_cells(line) for line in table(rows).splitlines()[2:]]
    for cells in seen:
        name = cells[0]
        runs = {row.which for row in rows if row.framework == name}
        known = next((other for other in written if other[0] == name), None)
        if known is None or any(known[column] != cells[column] for column in _compared(known, runs)):
            advice = "tests/spellings/run --write writes it"
            return f"docs/frameworks.md is not what this run saw of {name}; {advice}:\n{table(rows)}"
    return None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def _compared(known: list[str], runs: set[str]) -> list[int]:
    """Return the columns of a row that are the same on every machine, if these versions have run."""
    name, oldest, newest = known[:3]
    columns = {"oldest": [1], "newest": [2, 4, 5]}
    compared = [column for which in runs for column in columns[which]]
    if len(runs) > 1 or oldest == newest:
        compared.append(3)
    return [column for column in compared if column > 2 or name not in _OF_THE_MACHINE]
