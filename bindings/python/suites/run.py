"""Downloads the source packages of limits and Flask-Limiter and runs their tests on the storages of polylimit.

python run.py [suite]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent
TARGET = FOLDER.parent.parent.parent / "target" / "suites"
sys.path.insert(0, str(FOLDER.parent / "tests"))

from redis_server import RedisServer  # noqa: E402

#: Each suite with the port at which its tests expect Redis, and the folders that it does not run.
SUITES = {
    "limits": (7379, ["tests/storage", "tests/aio/storage", "tests/benchmarks"]),
    "Flask-Limiter": (46379, []),
}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def version(name: str) -> str:
    """Return the version that the tests of polylimit use."""
    lines = (FOLDER.parent / "requirements.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def source(name: str) -> Path:
    """Download a source package and unpack it."""
    into = TARGET / version(name)
    if not into.exists():
        downloads = TARGET / "downloads"
        command = ["download", "--no-deps", "--no-binary", name, "--dest", downloads, version(name)]
        subprocess.run([*PIP, *command], check=True)
        plain = version(name).replace("==", "-").replace("Flask-Limiter", "flask_limiter")
        unpacked = TARGET / "unpacked"
        with tarfile.open(downloads / f"{plain}.tar.gz") as archive:
            archive.extractall(unpacked, filter="data")
        (unpacked / plain).rename(into)
    return into


def packages() -> Path:
    """Install the packages that only the suites import."""
    wanted = (FOLDER / "requirements.txt").read_text()
    folder = TARGET / "packages"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        command = ["install", "--no-deps", "--target", folder, "--requirement", FOLDER / "requirements.txt"]
        subprocess.run([*PIP, *command], check=True)
        stamp.write_text(wanted)
    return folder


def run(name: str) -> int:
    """Run a suite; return the exit code of pytest."""
    port, left_out = SUITES[name]
    path = [str(FOLDER), str(packages()), str(FOLDER.parent / "python")]
    environment = {
        **os.environ,
        "POLYLIMIT_SUITE": name,
        "POLYLIMIT_SUITE_SERVER": f"redis://localhost:{port}",
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Wide enough for the tables that commands print.
        "COLUMNS": "200",
    }
    print(f"== {version(name)}", flush=True)
    folder = source(name)
    server = RedisServer(port)
    try:
        # Their own options need a coverage plugin, and turn warnings of other storages into errors.
        own = ["-o", "addopts=", "-o", "filterwarnings=", "-p", "plugin", "-p", "no:cacheprovider", "-W", "ignore"]
        ignored = [f"--ignore={path}" for path in left_out]
        command = [sys.executable, "-m", "pytest", "-q", "-rfEX", "--tb=short", *own, *ignored, *sys.argv[2:], "tests"]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode
    finally:
        server.close()


def main() -> int:
    """Run the program."""
    TARGET.mkdir(parents=True, exist_ok=True)
    names = [name for name in SUITES if name in sys.argv[1:]] or list(SUITES)
    return max(run(name) for name in names)


if __name__ == "__main__":
    sys.exit(main())
