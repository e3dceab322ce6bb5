"""Lists for the linker which symbols two frameworks of macOS have: zig has Apple's list of libSystem, and none of frameworks.

The symbols are those that the crates with their declarations name, as only a Mac with Apple's tools has the lists. A symbol that macOS
lacks would be noticed when the file is loaded there.
"""

import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: Each framework with the crate that declares what it has.
FRAMEWORKS = {"Security": "security-framework-sys", "CoreFoundation": "core-foundation-sys"}
#: Rust's own library links to it on macOS.
ICONV = ["iconv", "iconv_close", "iconv_open"]
DECLARED = re.compile(r"\bpub (?:fn|static(?: mut)?) (\w+)")
LIST = """\
--- !tapi-tbd
tbd-version: 4
targets: [ x86_64-macos, arm64-macos ]
install-name: '{installed}'
exports:
  - targets: [ x86_64-macos, arm64-macos ]
    symbols: [ {symbols} ]
...
"""


def sources(crate: str) -> Path:
    """The folder of a crate of the lock file."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "aarch64-apple-darwin"]
    described = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    return next(Path(each["manifest_path"]).parent for each in described["packages"] if each["name"] == crate)


def write(folder: Path) -> Path:
    """Write the lists into a folder, and return it."""
    for name, crate in FRAMEWORKS.items():
        texts = [path.read_text() for path in (sources(crate) / "src").rglob("*.rs")]
        symbols = {symbol for text in texts for symbol in DECLARED.findall(text)}
        installed = f"/System/Library/Frameworks/{name}.framework/Versions/A/{name}"
        write_list(folder / f"{name}.framework" / f"{name}.tbd", installed, symbols)
    # cargo-zigbuild has a list of its own; this one is for programs in C and Go.
    write_list(folder / "libiconv.tbd", "/usr/lib/libiconv.2.dylib", ICONV)
    return folder


def write_list(place: Path, installed: str, symbols: Iterable[str]) -> None:
    """Write a list, unless it is there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    listed = LIST.format(installed=installed, symbols=", ".join(f"'_{symbol}'" for symbol in sorted(symbols)))
    if not place.is_file() or place.read_text() != listed:
        place.write_text(listed)
