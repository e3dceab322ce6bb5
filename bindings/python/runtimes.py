"""Finds the CPythons with which the tests run besides that of target/python-venv, and runs tests with them.

runtimes.py test [VERSION...]
    Run the tests that depend on the interpreter with the oldest and the newest CPython, or with these.
runtimes.py install [VERSION...]
    Only install.
runtimes.py run VERSION COMMAND...
    Run a command; `python` is the interpreter.

An interpreter is one of this machine (in the PATH, or in pyenv's folder), or that of a release of Debian, whose file
system tools/packages/root makes: a command runs in it as in the system, with the project where it is outside and
read-only. The packages of requirements-runtimes.txt, or of requirements-VERSION.txt, are in target/python-runtimes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = ROOT / "target"
#: The CPythons that polylimit supports.
SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")
TESTED = (SUPPORTED[0], SUPPORTED[-1])
#: The releases of Debian that have a CPython which this machine may not have.
RELEASES = {"3.13": "trixie", "3.14": "forky"}
#: Tests of what an interpreter can change: how methods are called and awaited, tasks, arguments, annotations,
#: frameworks.
TESTS = [
    "tests/test_coroutines.py",
    "tests/test_arguments.py",
    "tests/test_backoff.py",
    "tests/test_fastapi.py",
    "tests/test_starlette.py",
    "tests/test_flask.py",
    "tests/test_limit_options.py",
]
#: Enters the file system of a release; its arguments are the project, the file system and the command.
ENTER = r"""
set -euo pipefail
root=$1 folder=$2
shift 2
mount --bind "$folder" "$folder"
mount -t proc proc "$folder/proc"
mount -t tmpfs -o mode=1777 tmpfs "$folder/tmp"
# The project may itself be in /tmp.
mkdir -p "$folder$root"
mount --bind "$root" "$folder$root"
mount -o remount,bind,ro "$folder$root"
for place in null zero random urandom; do
  [ -e "$folder/dev/$place" ] || touch "$folder/dev/$place"
  mount --bind "/dev/$place" "$folder/dev/$place"
done
mkdir -p "$folder/dev/shm"
mount --bind /dev/shm "$folder/dev/shm"
exec chroot "$folder" /usr/bin/env HOME=/tmp LANG=C.UTF-8 PATH=/usr/bin:/bin sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock, so that programs that run at the same time make something once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def of_this_machine(version: str) -> Path | None:
    """Return the interpreter of a CPython on this machine, if there is one."""
    in_path = shutil.which(f"python{version}")
    candidates = [Path(in_path)] if in_path else []
    candidates += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in candidates:
        code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        found = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if found.stdout.strip() == version:
            return candidate
    return None


def of_debian(version: str) -> Path | str:
    """Return the file system of the release that has a CPython, or why it cannot be had."""
    if version not in RELEASES:
        return f"CPython {version} is not on this machine"
    where = f"CPython {version} is in a file system of Debian {RELEASES[version]}"
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        return f"{where}, which needs root and apt-get"
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return f"{where}, which needs the right to mount"
    with locked(TARGET / "packages/python.lock"):
        command: list[str | Path] = [ROOT / "tools/packages/root", RELEASES[version], "python"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"{where}, which could not be made: {(made.stderr.strip().splitlines() or ['no reason'])[-1]}"
    folder = Path(made.stdout.strip())
    if not (folder / f"usr/bin/python{version}").exists():
        return f"Debian {RELEASES[version]} has another CPython than {version}"
    return folder


def installed(version: str) -> Path | str:
    """Return a program that is a CPython with the packages of the tests, or why it cannot be had."""
    folder = TARGET / "python-runtimes" / version
    python, stamp = folder / "bin/python", folder / ".installed"
    files = [HERE / "requirements-runtimes.txt", HERE / "requirements.txt"]
    read = [*files, *HERE.glob(f"requirements-{version}.txt")]
    wanted = hashlib.sha256("".join([ENTER, *(file.read_text() for file in read)]).encode()).hexdigest()
    with locked(folder.with_name(f".{version}.lock")):
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        found = of_this_machine(version)
        if found is not None:
            subprocess.run([found, "-m", "venv", folder], check=True)
            pip: list[str | Path] = [python, "-m", "pip", "install"]
        else:
            system = of_debian(version)
            if isinstance(system, str):
                return system
            packages = folder / "packages"
            python.parent.mkdir(parents=True)
            # What comes before in PYTHONPATH, such as a version of a framework, stays there.
            python.write_text(
                f"#!/usr/bin/env bash\nexport PYTHONPATH=${{PYTHONPATH:+$PYTHONPATH:}}{packages}\n"
                f'exec unshare --mount bash -c {quoted(ENTER)} bash {ROOT} {system} /usr/bin/python{version} "$@"\n'
            )
            python.chmod(0o755)
            platform: list[str | Path] = ["--python-version", version, "--only-binary", ":all:", "--target", packages]
            pip = [TARGET / "python-venv/bin/python", "-m", "pip", "install", *platform]
        own = HERE / f"requirements-{version}.txt"
        chosen: list[str | Path] = ["-r", own] if own.exists() else ["-r", files[0], "-c", files[1]]
        subprocess.run([*pip, "--quiet", "--disable-pip-version-check", *chosen], check=True)
        stamp.write_text(wanted)
    return python


def quoted(text: str) -> str:
    """Return a text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def newest(at_least: str) -> Path | None:
    """Return the newest CPython of this machine with the packages of the tests; `None` if none is new enough."""
    for version in reversed(SUPPORTED[SUPPORTED.index(at_least) :]):
        if of_this_machine(version) is not None:
            found = installed(version)
            return found if isinstance(found, Path) else None
    found = installed(at_least if at_least in RELEASES else "3.13")
    return found if isinstance(found, Path) else None


def environment() -> dict[str, str]:
    """Return the environment in which the module is that of this folder."""
    return {**os.environ, "PYTHONPATH": str(HERE / "python"), "PYTHONDONTWRITEBYTECODE": "1"}


def test(versions: list[str]) -> int:
    """Run the tests; print the lines that tests/steps.sh counts."""
    failed = False
    for version in versions or TESTED:
        python = installed(version)
        if isinstance(python, str):
            print(f"skipped: tests with CPython {version}: {python}", flush=True)
            continue
        subprocess.run([python, "-c", "import sys; print('-- CPython', sys.version)"], env=environment(), check=True)
        command: list[str | Path] = [python, "-m", "pytest", "-n", "0", *TESTS]
        failed |= subprocess.run(command, cwd=HERE, env=environment(), check=False).returncode != 0
    return int(failed)


def main() -> int:
    """Run a command of this program."""
    match sys.argv[1:]:
        case ["test", *versions]:
            return test(versions)
        case ["install", *versions]:
            for version in versions or TESTED:
                print(f"{version}: {installed(version)}")
        case ["run", version, *command] if command:
            python = installed(version)
            if isinstance(python, str):
                sys.exit(python)
            if command[0] == "python":
                command[0] = str(python)
            os.execvpe(command[0], command, environment())
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
