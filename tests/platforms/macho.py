"""Examines what is linked for macOS: macho.py FILE [--name INSTALL_NAME] [--header HEADER] [--interpreter PATTERN]

The processor and the oldest macOS, the libraries that are loaded, where each symbol comes from, and the signature
without which a Mac with Apple's processors runs nothing. --header: every function that it declares is exported.
--interpreter: the symbols that the program that loads the file has.
"""

import argparse
import re
import sys
from pathlib import Path

import lief

#: What every Mac has.
LIBRARIES = {
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libcharset.1.dylib",
    "/usr/lib/libiconv.2.dylib",
    "/usr/lib/libobjc.A.dylib",
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
    "/System/Library/Frameworks/Security.framework/Versions/A/Security",
}
#: The oldest macOS that Rust's own libraries run on.
OLDEST = {"ARM64": (11, 0), "X86_64": (10, 12)}
#: The ordinal of a symbol that is looked for in whatever is loaded.
ANYWHERE = -2


def oldest(binary: lief.MachO.Binary) -> tuple[int, int]:
    """The oldest macOS that the file says it runs on."""
    command = binary.build_version
    version = command.minos if command is not None else binary.version_min.version
    return version[0], version[1]


def wrong(binary: lief.MachO.Binary, options: argparse.Namespace) -> list[str]:
    """What a Mac would object to, and what is not as promised."""
    found = []
    processor = binary.header.cpu_type.name
    if oldest(binary) > OLDEST[processor]:
        found.append(f"it needs macOS {'.'.join(map(str, oldest(binary)))}")
    own = {command.name for command in binary.libraries if command.command == lief.MachO.LoadCommand.TYPE.ID_DYLIB}
    loaded = {command.name for command in binary.libraries} - own
    if "/usr/lib/libSystem.B.dylib" not in loaded or not loaded <= LIBRARIES:
        found.append(f"it loads {sorted(loaded)}")
    if options.name and own != {options.name}:
        found.append(f"its name is {sorted(own)}")
    if processor == "ARM64" and not binary.has_code_signature:
        found.append("it has no signature")
    imported = [symbol for symbol in binary.imported_symbols if symbol.has_binding_info or symbol.name]
    anywhere = {symbol.name for symbol in imported if symbol.library_ordinal == ANYWHERE}
    unknown = {name for name in anywhere if not (options.interpreter and re.match(options.interpreter, name))}
    if unknown:
        found.append(f"nothing has the symbols {sorted(unknown)[:10]}")
    if options.interpreter and not anywhere:
        found.append("it asks its interpreter for nothing")
    if options.header:
        text = re.sub(r"/\*.*?\*/", "", Path(options.header).read_text(), flags=re.DOTALL)
        declared = {f"_{name}" for name in re.findall(r"\b(polylimit_[a-z0-9_]+)\([^;{}]*\);", text)}
        lacking = declared - {symbol.name for symbol in binary.exported_symbols}
        if lacking or not declared:
            found.append(f"it does not export {sorted(lacking)[:10]}")
        print(f"  {len(declared)} functions of the header")
    said = f"{processor}, macOS {'.'.join(map(str, oldest(binary)))} and newer"
    print(f"  {said}, {len(imported)} symbols of {len(loaded)} libraries, {len(anywhere)} of the interpreter")
    return found


def main() -> None:
    """Run the program."""
    arguments = argparse.ArgumentParser(description="Examines what is linked for macOS.")
    arguments.add_argument("file")
    arguments.add_argument("--name")
    arguments.add_argument("--header")
    arguments.add_argument("--interpreter")
    options = arguments.parse_args()
    print(options.file)
    parsed = lief.MachO.parse(options.file)
    if parsed is None:
        sys.exit(f"{options.file} is no file of macOS")
    if found := wrong(parsed.at(0), options):
        sys.exit("\n".join(f"{options.file}: {each}" for each in found))


if __name__ == "__main__":
    main()
