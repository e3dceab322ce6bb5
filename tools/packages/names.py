"""What the files in dist/ are called: derived from targets.toml, so that what is built, tested and published can be compared with it."""

import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: The Go modules, of which the first has the library inside.
GO_MODULES = [
    "polylimit.dev/polylimit",
    "polylimit.dev/polylimit/polylimitfasthttp",
    "polylimit.dev/polylimit/polylimitgrpc",
    "polylimit.dev/polylimit/polylimitotel",
    "polylimit.dev/polylimit/polylimitprometheus",
]
#: The crates of the core, in the order in which they are published.
CORE_CRATES = [
    "polylimit-rules",
    "polylimit-runtime",
    "polylimit-store",
    "polylimit-document",
    "polylimit-store-memory",
    "polylimit-store-local",
    "polylimit-store-redis",
    "polylimit",
]
#: The crates whose contents are listed.
CRATES = ["polylimit-c", "polylimit-cli", "polylimit-node", "polylimit-python", "polylimit-redis-module", "polylimit-uniffi"]


def targets() -> list[dict[str, str]]:
    """The rows of targets.toml."""
    return tomllib.loads((HERE / "targets.toml").read_text())["target"]


def platform(row: dict[str, str], *linux: str) -> str:
    """What wheels call a platform; for Linux, several names of what they promise."""
    if "linux" not in row["rust"]:
        return row["wheel"]
    processor = row["rust"].partition("-")[0]
    return ".".join(f"{name}_{processor}" for name in linux)


def wheel(version: str, row: dict[str, str]) -> str:
    """The wheel of a platform. Wheels for glibc have the new and the old name of what they promise."""
    names = {"manylinux2014": ("manylinux_2_17", "manylinux2014")}.get(row["wheel"], (row["wheel"],))
    return f"polylimit-{version}-cp310-abi3-{platform(row, *names)}.whl"


def program_wheel(version: str, row: dict[str, str]) -> str:
    """The wheel with the command line, which is for every Python. A static program needs no C library."""
    names = platform(row, "manylinux2014", "manylinux_2_17", "musllinux_1_1")
    return f"polylimit_cli-{version}-py3-none-{names}.whl"


def files(version: str, rows: list[dict[str, str]]) -> dict[str, list[str]]:
    """The files for some platforms, by what they are."""
    return {
        "wheels": [wheel(version, row) for row in rows],
        "sdist": [f"polylimit-{version}.tar.gz"],
        "program wheels": [program_wheel(version, row) for row in rows if "program" in row],
        "addons": [f"polylimit-{row['node']}-{version}.tgz" for row in rows],
        "npm": [f"polylimit-{version}.tgz"],
        "npm programs": [f"polylimit-cli-{row['program']}-{version}.tgz" for row in rows if "program" in row],
        "npm command": [f"polylimit-cli-{version}.tgz"],
        "gems": [f"polylimit-{version}-{row['gem']}.gem" for row in rows if "gem" in row],
        "jars": [f"polylimit-{version}{part}" for part in (".jar", "-sources.jar", "-javadoc.jar", ".pom")],
        "go": [f"go/{module}/@v/v{version}.{part}" for module in GO_MODULES for part in ("info", "mod", "zip")],
        "c": [f"polylimit-c-{version}-{row['c']}.tar.gz" for row in rows if "c" in row],
        "module": [f"polylimit-redis-module-{version}-{row['module']}.tar.gz" for row in rows if "module" in row],
        "cli": [f"polylimit-cli-{version}-{row['cli']}.tar.gz" for row in rows],
        "debs": [f"polylimit-cli_{version}_{row['deb']}.deb" for row in rows if "deb" in row],
        "image": [f"polylimit-image-{version}.tar"],
        "formula": ["polylimit.rb"],
        "chart": [f"helm/polylimit-{version}.tgz"],
        "lists": [f"{crate}.cdx.json" for crate in CRATES],
    }
