"""Finds the CPythons with which the tests run besides that of target/python-venv, and runs the tests with them.

runtimes.py test
    Run the tests that depend on the interpreter with the oldest and the newest CPython.
runtimes.py install
    Only install.

Each gets a virtual environment in target/python-runtimes with the packages of requirements-runtimes.txt. An interpreter
is one of this machine (in the PATH, in pyenv's folder).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "target"
#: The CPythons that polylimit supports.
SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")


def base(version: str) -> Path | None:
    """Return the interpreter of a CPython on this machine, if there is one."""
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for candidate in filter(None, candidates):
        code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        found = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if found.stdout.strip() == version:
            return Path(candidate)
    return None


def installed(version: str) -> Path | None:
    """Return the interpreter of the environment with a CPython, which is made where it is missing."""
    folder = TARGET / "python-runtimes" / version
    stamp = folder / ".installed"
    wanted = (HERE / "requirements-runtimes.txt").read_text() + (HERE / "requirements.txt").read_text()
    python = folder / "bin/python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    found = base(version)
    if found is None:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([found, "-m", "venv", folder], check=True)
    files = ["-r", HERE / "requirements-runtimes.txt", "-c", HERE / "requirements.txt"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *files], check=True)
    stamp.write_text(wanted)
    return python


def newest(at_least: str) -> Path | None:
    """Return the interpreter of the newest CPython that can be had; `None` if none is new enough."""
    for version in reversed(SUPPORTED[SUPPORTED.index(at_least) :]):
        python = installed(version)
        if python is not None:
            return python
    return None


if __name__ == "__main__":
    sys.exit(__doc__)
