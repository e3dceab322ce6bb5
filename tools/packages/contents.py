"""What packages are made of and what has to hold for them: archives, lists, sizes, and the C library that they need."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
#: The last one is written by tools/notices.
NOTICES = [ROOT / "LICENSE-APACHE", ROOT / "LICENSE-MIT", ROOT / "target/THIRD_PARTY_NOTICES"]
MIB = 1024 * 1024
#: The most that a file may have, by what its name looks like; the program is measured as it lies on the disk. The goal for a wheel and an
#: addon is 3.5 MiB: docs/packages.md.
LARGEST = {r"^polylimit-.*\.whl$": 5 * MIB, r"^polylimit-(linux|darwin|win32)-.*\.tgz$": 5 * MIB}
#: What a package has to have, as the end of a file's name and patterns of the names in it.
NEEDED = {
    r"^polylimit-.*\.whl$": [
        r"polylimit/__init__\.py",
        r"polylimit/py\.typed",
        r"polylimit/_core(\.abi3\.so|\.pyd)",
        r".*THIRD_PARTY_NOTICES",
    ],
    r"^polylimit_cli-.*\.whl$": [
        r"polylimit_cli/__init__\.py",
        r"polylimit_cli/polylimit(\.exe)?",
        r".*/entry_points\.txt",
        r".*/THIRD_PARTY_NOTICES",
    ],
    r"^polylimit-cli-\d[^-]*\.tgz$": [r"package/index\.js", r"package/THIRD_PARTY_NOTICES"],
    r"^polylimit-cli-(linux|darwin|win32)-.*\.tgz$": [r"package/polylimit(\.exe)?", r"package/THIRD_PARTY_NOTICES"],
    r"polylimit-\d[^-]*\.jar$": [
        r"polylimit/Limiter\.class",
        r"(linux|darwin|win32)-[a-z0-9-]+/(lib)?polylimit_uniffi\.(so|dylib|dll)",
        r".*THIRD_PARTY_NOTICES",
    ],
    r"-sources\.jar$": [r"polylimit/Limiter\.kt"],
    r"-javadoc\.jar$": [r"index\.html", r"polylimit/Limiter\.html"],
    r"^polylimit-(linux|darwin|win32)-.*\.tgz$": [r"package/polylimit\..*\.node", r"package/THIRD_PARTY_NOTICES"],
    r"\.gem$": [r"data\.tar\.gz"],
    r"^polylimit-c-.*\.tar\.gz$": [
        r".*/polylimit\.h",
        r".*/libpolylimit\.a",
        r".*/polylimit-static\.pc",
        r".*/THIRD_PARTY_NOTICES",
    ],
    r"^polylimit-redis-module-.*\.tar\.gz$": [r".*/libpolylimit_redis\.(so|dylib)", r".*/THIRD_PARTY_NOTICES"],
    r"^polylimit-cli-.*\.tar\.gz$": [
        r".*/polylimit(\.exe)?",
        r".*/polylimit\.1",
        r".*/polylimit\.bash",
        r".*/THIRD_PARTY_NOTICES",
    ],
}
LARGEST_PROGRAM = 20 * MIB


def copy_notices(folder: Path) -> None:
    for path in NOTICES:
        shutil.copy2(path, folder / path.name)


def write_archive(path: Path, folder: Path, epoch: int) -> Path:
    """Pack a folder so that the same files make the same archive."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in [folder, *sorted(folder.rglob("*"))]:
            entry = archive.gettarinfo(file, str(file.relative_to(folder.parent)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = epoch
            if entry.isfile():
                with file.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return path


def made_by(into: Path, build: Callable[[], None]) -> list[Path]:
    """The files that a command has put into a folder."""
    before = set(into.rglob("*"))
    build()
    return sorted(path for path in set(into.rglob("*")) - before if path.is_file())


def llvm_strip() -> Path:
    """The program that strips objects of every target: that of Rust's own tools, or one that is installed."""

    def find() -> Path | None:
        sysroot = subprocess.run(
            ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True
        ).stdout.strip()
        return next(Path(sysroot).glob("lib/rustlib/*/bin/llvm-strip"), None)

    found = find()
    if found is None and shutil.which("rustup"):
        subprocess.run(["rustup", "--quiet", "component", "add", "llvm-tools"], check=False)
        found = find()
    if found is None and (installed := shutil.which("llvm-strip")):
        found = Path(installed)
    if found is None:
        sys.exit("tools/packages/build: there is no llvm-strip: `rustup component add llvm-tools`, or install LLVM")
    return found


def bill_of_materials(into: Path, crate: str, target: str, run: Callable[..., None]) -> dict:
    """The crates in what is compiled of a crate, as CycloneDX."""
    name = f"{crate}.cdx"
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, capture_output=True, check=True
        ).stdout
    )
    folders = {package["name"]: Path(package["manifest_path"]).parent for package in metadata["packages"]}
    try:
        run(
            "cargo",
            "cyclonedx",
            "--quiet",
            "--format",
            "json",
            "--target",
            target,
            "--override-filename",
            name,
            "--manifest-path",
            folders[crate] / "Cargo.toml",
        )
        path = into / f"{name}.json"
        shutil.copy2(folders[crate] / f"{name}.json", path)
    finally:
        # It writes one for every crate of the workspace.
        for folder in folders.values():
            (folder / f"{name}.json").unlink(missing_ok=True)
    return entry(path, "sbom", [], into)


def entry(path: Path, kind: str, targets: Iterable, into: Path) -> dict:
    """The row of a file in the manifest."""
    targets = list(targets)
    named = program_names if kind in ("python-cli", "node-cli") else names
    own = [target for target in targets if any(re.search(rf"[-_]{name}\b", path.name) for name in named(target))]
    for_platform = own or [
        target
        for target in targets
        if (path.suffix == ".jar" and re.search(r"\d\.jar$", path.name) and target.jar)
        or (path.suffix == ".zip" and target.go)
        or (kind == "image" and target.image)
    ]
    return {
        "file": str(path.relative_to(into)),
        "kind": kind,
        "bytes": path.stat().st_size,
        "targets": [target.rust for target in for_platform],
        "built": ""
        if not for_platform
        else "natively"
        if all(target.native for target in for_platform)
        else "cross-compiled",
        "tested": [],
    }


def names(target: object) -> list[str]:
    """Patterns of what the names of a platform's files end in."""
    libc = "musllinux[0-9_]*" if "musl" in target.rust else "manylinux[0-9_]*"
    debian = [rf"{target.deb}\.deb"] if target.deb else []
    gem = [rf"{target.gem}\.gem"] if target.gem else []
    c = [target.c] if target.c else []
    wheel = f"{libc}_{target.rust.partition('-')[0]}" if "linux" in target.rust else target.wheel
    return [target.cli, target.node, *c, *gem, wheel, *debian]


def program_names(target: object) -> list[str]:
    """The same for the packages with the command line."""
    if target.npm_program is None:
        return []
    wheel = f"manylinux.*_{target.rust.partition('-')[0]}" if "linux" in target.rust else target.wheel
    return [rf"cli-{target.npm_program}", rf"{wheel}\.whl"]


def needed_glibc(library: bytes) -> tuple[int, ...]:
    """The newest version of glibc's symbols that a library or program asks for."""
    found = re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)", library)
    return max((tuple(int(part) for part in version.split(b".")) for version in found), default=(0,))


def natives(path: Path) -> Iterable[tuple[str, bytes]]:
    """The programs and libraries in a package."""
    if path.suffix in (".whl", ".jar", ".zip"):
        with zipfile.ZipFile(path) as archive:
            found = [(name, archive.read(name)) for name in archive.namelist()]
    elif path.name.endswith((".tar.gz", ".tgz", ".gem")):
        with tarfile.open(path) as archive:
            found = [(file.name, archive.extractfile(file).read()) for file in archive if file.isfile()]
    else:
        return
    for name, content in found:
        if name == "data.tar.gz":
            with tarfile.open(fileobj=BytesIO(content)) as archive:
                yield from ((file.name, archive.extractfile(file).read()) for file in archive if file.isfile())
        elif content.startswith(b"\x7fELF"):
            yield name, content


def names_in(path: Path) -> list[str]:
    """The names of the files in a package."""
    if path.suffix in (".whl", ".jar", ".zip"):
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    if path.name.endswith((".tar.gz", ".tgz", ".gem")):
        with tarfile.open(path) as archive:
            return archive.getnames()
    return []


def lacks(path: Path) -> list[str]:
    """What a package has to have and has not."""
    wanted = [pattern for name, patterns in NEEDED.items() if re.search(name, path.name) for pattern in patterns]
    found = names_in(path)
    return [pattern for pattern in wanted if not any(re.fullmatch(pattern, name) for name in found)]


def check(into: Path, entries: list[dict], oldest: tuple[int, ...] = (2, 17), *, has_final_sizes: bool = True) -> None:
    """Refuse packages that are too large, that lack a file, or that need a newer C library than they promise."""
    wrong = []
    for each in entries:
        path = into / each["file"]
        for pattern, largest in LARGEST.items():
            if has_final_sizes and re.search(pattern, path.name) and path.stat().st_size > largest:
                wrong.append(f"{path.name} has {path.stat().st_size} bytes; at most {largest} are allowed")
        wrong += [f"{path.name} has no {pattern}" for pattern in lacks(path)]
        for name, content in natives(path):
            if not content.startswith(b"\x7fELF"):
                continue
            if needed_glibc(content) > oldest:
                wrong.append(f"{path.name}: {name} needs glibc {'.'.join(map(str, needed_glibc(content)))}")
            if has_final_sizes and name.rpartition("/")[2] == "polylimit" and len(content) > LARGEST_PROGRAM:
                wrong.append(f"{path.name}: {name} has {len(content)} bytes; at most {LARGEST_PROGRAM} are allowed")
    if wrong:
        sys.exit("tools/packages/build: " + "\n".join(wrong))


def write_checksums(into: Path) -> None:
    """Write what `sha256sum --check SHA256SUMS` reads. The formula has checksums itself, and further ones at a release."""
    others = ("SHA256SUMS", "MANIFEST.json", "polylimit.rb")
    files = sorted(path for path in into.rglob("*") if path.is_file() and path.name not in others)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(into)}\n" for path in files]
    (into / "SHA256SUMS").write_text("".join(lines))


def print_table(entries: list[dict]) -> None:
    for each in entries:
        note = f", {each['built']}" if each["built"] else ""
        tested = f", runs with {', '.join(each['tested'])}" if each["tested"] else ", NOT RUN" if each["built"] else ""
        print(f"{each['file']}: {each['bytes'] / 1e6:.2f} MB{note}{tested}")
