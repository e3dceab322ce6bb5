"""Makes the wheel with the command line for a platform, of its compiled program: the package `polylimit-cli`, which `polylimit[cli]` needs."""

import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import contents
import names

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "bindings/python/cli"
METADATA = """\
Metadata-Version: 2.4
Name: polylimit-cli
Version: {version}
Summary: The command line of polylimit: queries and manages rate limits from a shell
Author: The polylimit authors
License-Expression: MIT OR Apache-2.0
{licences}Project-URL: Homepage, https://polylimit.dev
Requires-Python: >=3.10
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: polylimit
Root-Is-Purelib: false
{tags}"""
SCRIPTS = "[console_scripts]\npolylimit-cli = polylimit_cli:main\n"


def write(into: Path, program: Path, version: str, row: dict[str, str], pack: Callable[[Path], None]) -> Path:
    """Write the wheel into the folder; `pack` packs the files of one, and adds their checksums."""
    name = names.program_wheel(version, row)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "polylimit_cli"
        shutil.copytree(SOURCES / "polylimit_cli", package, ignore=shutil.ignore_patterns("__pycache__"))
        placed = package / ("polylimit.exe" if "windows" in row["rust"] else "polylimit")
        shutil.copyfile(program, placed)
        placed.chmod(placed.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        described = Path(folder) / f"polylimit_cli-{version}.dist-info"
        (described / "licenses").mkdir(parents=True)
        contents.copy_notices(described / "licenses")
        licences = "".join(f"License-File: {path.name}\n" for path in contents.NOTICES)
        readme = (SOURCES / "README.md").read_text()
        (described / "METADATA").write_text(METADATA.format(version=version, licences=licences, readme=readme))
        platforms = name.removesuffix(".whl").rpartition("-")[2].split(".")
        (described / "WHEEL").write_text(WHEEL.format(tags="".join(f"Tag: py3-none-{each}\n" for each in platforms)))
        (described / "entry_points.txt").write_text(SCRIPTS)
        pack(Path(folder))
    if not (into / name).is_file():
        sys.exit(
            f"tools/packages/build: {name} was not made: the wheels are {[path.name for path in into.glob('*.whl')]}"
        )
    return into / name
