"""Installs the versions of frameworks that polylimit supports, and runs commands and tests with them.

versions.py run FRAMEWORK oldest|newest|VERSION -- COMMAND...
    Run a command with one version; `python` is the interpreter that has it.
versions.py test oldest|newest|between [FRAMEWORK...]
    Run the tests of versions.toml. `newest` leaves out what target/python-venv has: there the whole suite runs.
versions.py install oldest|newest|between [FRAMEWORK...]
    Only install.
versions.py table
    Print the table of versions for the documentation.

The versions are in target/python-versions; target/python-venv has to exist (`setup`), and the module has to be built
(`build`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import runtimes

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "target"
WHICH = ("oldest", "newest", "between")


class InstallationError(Exception):
    """Pip could not install a version."""


class Version(NamedTuple):
    """A version of a framework."""

    framework: str
    #: `oldest`, `newest`, or the minor version.
    which: str
    #: What pip installs; nothing where target/python-venv has it.
    install: tuple[str, ...]
    #: Packages that are installed in another version than requirements.txt says.
    free: tuple[str, ...]
    #: The CPython that it needs; `None` for that of target/python-venv.
    python: str | None
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The version for people."""
        return f"{self.framework} {self.which}" + (f" ({self.install[0]})" if self.install else "")


def configuration() -> dict[str, dict[str, Any]]:
    """Return what versions.toml says."""
    frameworks: dict[str, dict[str, Any]] = tomllib.loads((HERE / "versions.toml").read_text())
    return frameworks


def version(framework: str, which: str) -> Version:
    """Return the version of a framework by its name."""
    frameworks = configuration()
    entry = frameworks.get(framework)
    if entry is None:
        sys.exit(f'read framework "{framework}": allowed is {", ".join(frameworks)}; or add it to versions.toml')
    pins = entry.get(which) if which in ("oldest", "newest") else None
    if pins is None:
        if not re.fullmatch(r"\d+(\.\d+)+", which):
            sys.exit(f'read version "{which}": allowed is oldest, newest or a version such as {entry["between"][0]}')
        is_minor = which in entry["between"]
        pins = [f"{entry['package']}=={which}.*" if is_minor else f"{entry['package']}=={which}", *entry["with"]]
    names = tuple(package_name(one) for one in pins)
    install = tuple(one for one in pins if package_name(one) != one)
    python = entry.get("python", {}).get(which)
    return Version(framework, which, install, names, python, tuple(entry["tests"]))


def versions(which: str, frameworks: list[str]) -> list[Version]:
    """Return the oldest or newest versions of frameworks, or those between them."""
    if which not in WHICH:
        sys.exit(f'read "{which}": allowed is {", ".join(WHICH)}')
    names = frameworks or list(configuration())
    if which != "between":
        return [version(name, which) for name in names]
    return [version(name, minor) for name in names for minor in configuration()[name]["between"]]


def package_name(requirement: str) -> str:
    """Return the name of the package that a requirement is about."""
    return re.split(r"[=<>!~\[; ]", requirement, maxsplit=1)[0]


def interpreter(wanted: str | None) -> Path | None:
    """Return the interpreter of a CPython; `None` where this machine has none that is new enough."""
    venv = TARGET / "python-venv/bin/python"
    if wanted is None or tuple(map(int, wanted.split("."))) <= sys.version_info[:2]:
        return venv
    return runtimes.newest(at_least=wanted)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock, so that programs that run at the same time install a version once."""
    with (TARGET / "python-versions" / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(one: Version) -> tuple[Path | None, Path] | str:
    """Install a version; return its folder and its interpreter, or why it cannot be had."""
    python = interpreter(one.python)
    if python is None:
        return f"{one.name} needs CPython {one.python}, and this machine has none"
    if not one.install:
        return None, python
    venv_python = TARGET / "python-venv/bin/python"
    folder = TARGET / "python-versions" / (f"{one.framework}-{one.which}" + (f"-py{one.python}" if one.python else ""))
    folder.parent.mkdir(parents=True, exist_ok=True)
    pins = [
        line
        for line in (HERE / "requirements.txt").read_text().splitlines()
        if "==" in line and package_name(line).lower() not in {name.lower() for name in one.free}
    ]
    wanted = hashlib.sha256("\n".join([*one.install, *pins, str(python)]).encode()).hexdigest()
    stamp = folder / ".installed"
    with locked(folder.name):
        if stamp.exists() and stamp.read_text() == wanted:
            return folder, python
        shutil.rmtree(folder, ignore_errors=True)
        constraints = folder.with_name(folder.name + ".txt")
        constraints.write_text("\n".join(pins) + "\n")
        command: list[str | Path] = [
            venv_python,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        options: list[str | Path] = ["--no-compile", "--target", folder, "--constraint", constraints, *one.install]
        done = subprocess.run([*command, *options], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise InstallationError(f"pip could not install {one.name}: {done.stderr}")
        stamp.write_text(wanted)
    return folder, python


def environment(folder: Path | None, python: Path) -> dict[str, str]:
    """Return the environment of a command: the version comes first, then the module of this folder."""
    paths = [str(folder)] if folder else []
    paths.append(str(HERE / "python"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }


def run(framework: str, which: str, command: list[str]) -> None:
    """Run a command with a version, in place of this program."""
    one = version(framework, which)
    found = installed(one)
    if isinstance(found, str):
        # The driver of tests/spellings reads this line.
        print(f"skipped: {found}")
        sys.exit(1)
    folder, python = found
    if command[0] == "python":
        command = [str(python), *command[1:]]
    os.execvpe(command[0], command, environment(folder, python))


def test(which: str, frameworks: list[str]) -> int:
    """Run the tests of versions; print the lines that tests/steps.sh counts."""
    failed = False
    for one in versions(which, frameworks):
        if not one.install:
            continue
        try:
            found = installed(one)
        except InstallationError as error:
            # The versions after it are examined all the same.
            print(error, flush=True)
            failed = True
            continue
        if isinstance(found, str):
            print(f"skipped: {found}", flush=True)
            continue
        print(f"-- {one.name}", flush=True)
        folder, python = found
        # A version warns of newer packages; what polylimit does itself is tested with warnings as errors in the suite.
        options = ["-o", "filterwarnings=default", "--disable-warnings"]
        command = [str(python), "-m", "pytest", *options, *one.tests]
        failed |= subprocess.run(command, cwd=HERE, env=environment(folder, python), check=False).returncode != 0
    return int(failed)


def table() -> None:
    """Print the versions as a table of Markdown."""
    newest = dict(re.findall(r"^([\w.-]+)==(\S+)$", (HERE / "requirements.txt").read_text(), re.MULTILINE))
    print("| framework | oldest | newest tested |\n|---|---|---|")
    for name, entry in configuration().items():
        pins = {package_name(one): one.split("==")[-1] for one in [*entry["newest"]]}
        oldest = entry["oldest"][0].split("==")[-1] if entry["oldest"] else entry["between"][0]
        print(f"| {name} | {oldest} | {pins.get(entry['package']) or newest[entry['package']]} |")


def main() -> int:
    """Run a command of this program."""
    match sys.argv[1:]:
        case ["run", framework, which, "--", *command] if command:
            run(framework, which, command)
        case ["test", which, *frameworks]:
            return test(which, frameworks)
        case ["install", which, *frameworks]:
            for one in versions(which, frameworks):
                found = installed(one)
                print(f"skipped: {found}" if isinstance(found, str) else f"{one.name} is installed")
        case ["table"]:
            table()
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InstallationError as error:
        sys.exit(str(error))
