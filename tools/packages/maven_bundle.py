"""The bundle that Maven Central takes: the files of the jar in the layout of a repository, each with a signature and checksums.

maven_bundle.py FOLDER BUNDLE [KEY]   of the folder with the packages; signed by a key of gpg, the default one unless it is named
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

CHECKSUMS = ["md5", "sha1", "sha256", "sha512"]
#: What Maven Central wants in a POM, in addition to the coordinates: its page of requirements.
REQUIRED = [
    "name",
    "description",
    "url",
    "licenses/license/name",
    "developers/developer/name",
    "scm/url",
    "scm/connection",
]
NAMESPACE = "{http://maven.apache.org/POM/4.0.0}"


class BundleError(Exception):
    """What Maven Central would refuse."""


def missing_elements(pom: Path) -> list[str]:
    """The elements that a POM lacks."""
    project = ElementTree.parse(pom).getroot()

    def has(path: str) -> bool:
        found = project.find("/".join(NAMESPACE + name for name in path.split("/")))
        return found is not None and bool((found.text or "").strip())

    return [path for path in REQUIRED if not has(path)]


def coordinates(pom: Path) -> tuple[str, str, str]:
    """Group, artifact and version."""
    project = ElementTree.parse(pom).getroot()
    return tuple(project.findtext(NAMESPACE + name, "").strip() for name in ("groupId", "artifactId", "version"))


def sign(path: Path, key: str) -> bytes:
    """A detached signature in text."""
    command = ["gpg", "--batch", "--yes", "--pinentry-mode", "loopback", "--armor", "--detach-sign", "--output", "-"]
    return subprocess.run(
        [*command, *(["--local-user", key] if key else []), str(path)], capture_output=True, check=True
    ).stdout


def write(folder: Path, bundle: Path, key: str) -> None:
    """Write the bundle of the one version in the folder."""
    poms = list(folder.glob("polylimit-*.pom"))
    if len(poms) != 1:
        raise BundleError(f"{folder} has {len(poms)} POMs")
    group, artifact, version = coordinates(poms[0])
    names = [f"{artifact}-{version}{part}" for part in (".pom", ".jar", "-sources.jar", "-javadoc.jar")]
    if absent := [name for name in names if not (folder / name).is_file()]:
        raise BundleError(f"{folder} lacks {', '.join(absent)}")
    inside = f"{group.replace('.', '/')}/{artifact}/{version}"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_STORED) as packed:
        for name in names:
            content = (folder / name).read_bytes()
            packed.writestr(f"{inside}/{name}", content)
            packed.writestr(f"{inside}/{name}.asc", sign(folder / name, key))
            for kind in CHECKSUMS:
                packed.writestr(f"{inside}/{name}.{kind}", hashlib.new(kind, content).hexdigest())


def check(bundle: Path, folder: Path) -> int:
    """Unpack a bundle into a folder, and check every file as Maven Central does; how many files are signed."""
    with zipfile.ZipFile(bundle) as packed:
        packed.extractall(folder)
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".pom", ".jar")]
    if not files:
        raise BundleError("the bundle is empty")
    for path in files:
        group, artifact, version = coordinates(next(path.parent.glob("*.pom")))
        if path.parent != folder / group.replace(".", "/") / artifact / version:
            raise BundleError(f"{path.name} is in {path.parent.relative_to(folder)}, which is not its place")
        done = subprocess.run(
            ["gpg", "--batch", "--verify", f"{path}.asc", str(path)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BundleError(f"the signature of {path.name} is not one: {done.stderr.strip()}")
        for kind in CHECKSUMS:
            if Path(f"{path}.{kind}").read_text() != hashlib.new(kind, path.read_bytes()).hexdigest():
                raise BundleError(f"{path.name}.{kind} is the checksum of another file")
    return len(files)


if __name__ == "__main__":
    try:
        write(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
    except (BundleError, subprocess.CalledProcessError) as error:
        sys.exit(f"tools/packages/maven_bundle.py: {error}")
