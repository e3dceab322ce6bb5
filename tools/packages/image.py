"""Writes the image of the server: an archive of the OCI image layout, with an index of all platforms.

The static program is all that runs in it. What the image is started with (USER, EXPOSE, HEALTHCHECK, ENTRYPOINT, CMD) is read from
deploy/server/Dockerfile, which builds an image from the sources. The layout is written here, since buildah and umoci drop the health
check, which OCI leaves to Docker; the tests read and run the result by skopeo, umoci and runc.
"""

import datetime
import gzip
import hashlib
import json
import re
import sys
import tarfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import contents

ROOT = contents.ROOT
DOCKERFILE = ROOT / "deploy/server/Dockerfile"
OCI = "application/vnd.oci.image"
NANOSECONDS = {"s": 10**9, "m": 60 * 10**9}


@dataclass
class Layout:
    """An image layout in the making: every blob has its digest as its name."""

    epoch: int
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, content: bytes, media_type: str) -> dict:
        """Add a blob, and give its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, value: dict, media_type: str) -> dict:
        return self.add(json.dumps(value, sort_keys=True).encode(), media_type)

    def add_layer(self, files: dict[str, tuple[bytes, int]]) -> tuple[dict, str]:
        """Add files of root by their paths, with their modes; gives the descriptor, and the digest of what is compressed."""
        layer = tar({**folders(files), **files}, self.epoch)
        descriptor = self.add(gzip.compress(layer, mtime=0), f"{OCI}.layer.v1.tar+gzip")
        return descriptor, f"sha256:{hashlib.sha256(layer).hexdigest()}"


def folders(files: dict[str, tuple[bytes, int]]) -> dict[str, None]:
    """The folders above some files."""
    found = {str(above): None for path in files for above in Path(path).parents}
    return {path: None for path in sorted(found) if path != "."}


def tar(files: dict[str, tuple[bytes, int] | None], epoch: int) -> bytes:
    """Pack files, and folders, which have no content, so that the same ones make the same bytes."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.mtime = epoch
            entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            entry.mode = 0o755 if content is None else content[1]
            entry.size = 0 if content is None else len(content[0])
            archive.addfile(entry, BytesIO(b"" if content is None else content[0]))
    return packed.getvalue()


def instruction(name: str) -> str:
    """The last instruction of a name in the Dockerfile."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    found = re.findall(rf"^{name} (.+)$", text, re.MULTILINE)
    if not found:
        sys.exit(f"tools/packages/image.py: {DOCKERFILE} has no {name}")
    return found[-1]


def health_check() -> dict:
    """The health check, as Docker has it in the configuration of an image."""
    options, _, command = instruction("HEALTHCHECK").partition("CMD ")
    times = {
        name: int(number) * NANOSECONDS[unit]
        for name, number, unit in re.findall(r"--([a-z-]+)=(\d+)([sm])\b", options)
    }
    return {
        "Test": ["CMD", *json.loads(command)],
        "Interval": times["interval"],
        "Timeout": times["timeout"],
        "StartPeriod": times["start-period"],
        "StartInterval": times["start-interval"],
    }


def configuration(version: str, revision: str, created: str) -> dict:
    """What the program is started with, and the labels."""
    labels = {
        "title": "polylimit",
        "description": "polylimit serve: rate limits over HTTP, gRPC and RESP",
        "version": version,
        "revision": revision,
        "created": created,
        "licenses": "MIT OR Apache-2.0",
        "url": "https://polylimit.dev",
    }
    user = instruction("USER")
    return {
        "User": f"{user}:{user}",
        "ExposedPorts": {f"{instruction('EXPOSE')}/tcp": {}},
        "Env": ["PATH=/usr/local/bin"],
        "Entrypoint": json.loads(instruction("ENTRYPOINT")),
        "Cmd": json.loads(instruction("CMD")),
        "WorkingDir": "/",
        "StopSignal": "SIGTERM",
        "Healthcheck": health_check(),
        "Labels": {f"org.opencontainers.image.{name}": value for name, value in labels.items()},
    }


def common_files(authorities: Path, lists: list[Path]) -> dict[str, tuple[bytes, int]]:
    """What the image has on every platform: the user, authorities of certificates, licences, and the list of crates."""
    user = instruction("USER")
    files = {
        "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\npolylimit:x:{user}:{user}::/:/sbin/nologin\n".encode(),
        "etc/group": f"root:x:0:\npolylimit:x:{user}:\n".encode(),
        "etc/ssl/certs/ca-certificates.crt": authorities.read_bytes(),
        **{f"usr/local/share/doc/polylimit/{path.name}": path.read_bytes() for path in contents.NOTICES},
        **{f"usr/local/share/sbom/{path.name}": path.read_bytes() for path in lists},
    }
    return {path: (content, 0o644) for path, content in files.items()}


def write(
    path: Path,
    programs: dict[str, Path],
    *,
    version: str,
    revision: str,
    epoch: int,
    authorities: Path,
    lists: list[Path],
) -> Path:
    """Write the archive, with the program of each architecture by Go's name for that."""
    layout = Layout(epoch)
    created = datetime.datetime.fromtimestamp(epoch, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    started = configuration(version, revision, created)
    base = layout.add_layer({**common_files(authorities, lists)})
    entry = started["Entrypoint"][0].lstrip("/")
    manifests = []
    for architecture, program in sorted(programs.items()):
        layers = [base, layout.add_layer({entry: (program.read_bytes(), 0o755)})]
        image_config = {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": started,
            "rootfs": {"type": "layers", "diff_ids": [digest for _, digest in layers]},
            "history": [
                {"created": created, "created_by": f"tools/packages/image.py: {what}"} for what in ("files", "program")
            ],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": layout.add_json(image_config, f"{OCI}.config.v1+json"),
            "layers": [descriptor for descriptor, _ in layers],
            "annotations": started["Labels"],
        }
        descriptor = layout.add_json(manifest, manifest["mediaType"])
        manifests.append({**descriptor, "platform": {"architecture": architecture, "os": "linux"}})
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": manifests,
        "annotations": started["Labels"],
    }
    named = {
        **layout.add_json(index, index["mediaType"]),
        "annotations": {"org.opencontainers.image.ref.name": version},
    }
    layout.files["index.json"] = json.dumps(
        {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [named]}
    ).encode()
    layout.files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    files = {name: (content, 0o644) for name, content in layout.files.items()}
    path.write_bytes(tar({**folders(files), **files}, epoch))
    return path
