"""The services of examples/configuration, and the places from which they take their document."""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit, urlunsplit

import redis
from connection import Connection
from polylimit import Limiter
from services import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The services by their folders, with their languages.
LANGUAGES = {"python": "Python", "node": "Node", "go": "Go", "rust": "Rust"}
#: How long a service waits for a version, in seconds.
PATIENCE = 30


class Source(Protocol):
    """A store, and where the document of its limiters comes from."""

    url: str
    configuration: str

    def replace(self, document: str) -> None:
        """Replace the document, in one piece."""


class FileSource:
    """A file, which is replaced by renaming another one."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.configuration = f"file:{path}"
        self._path = path

    def replace(self, document: str) -> None:
        """Write next to the file, and rename: each service reads the old document or the new one."""
        beside = self._path.with_suffix(".new")
        beside.write_text(document)
        beside.replace(self._path)


class StoreSource:
    """Keys in Redis, to which a limiter publishes."""

    configuration = "store"

    def __init__(self, url: str, limiter: Limiter) -> None:
        self.url = url
        self._limiter = limiter

    def replace(self, document: str) -> None:
        """Publish it."""
        self._limiter.admin().publish(document, by="examples", why="the example changes its limits")


@contextlib.contextmanager
def file_source(url: str, document: str) -> Iterator[FileSource]:
    """Yield a file with a document, for limiters with this store."""
    with tempfile.TemporaryDirectory(prefix="polylimit-demo-") as folder:
        source = FileSource(url, Path(folder) / "polylimit.toml")
        source.replace(document)
        yield source


@contextlib.contextmanager
def store_source(url: str, document: str) -> Iterator[StoreSource]:
    """Publish a document under a prefix of its own, and remove it at the end."""
    prefix = f"demo-{secrets.token_hex(4)}"
    url = f"{url}{'&' if '?' in url else '?'}prefix={prefix}"
    with contextlib.ExitStack() as stack:
        stack.callback(remove_document, url, prefix)
        source = StoreSource(url, stack.enter_context(Limiter(url, configuration="store")))
        source.replace(document)
        yield source


def remove_document(url: str, prefix: str) -> None:
    """Delete the keys that publishing has made: no limiter has the right to."""
    with redis.Redis.from_url(urlunsplit(urlsplit(url)._replace(query=""))) as client:
        client.unlink(*(f"{prefix}:1:{{configuration}}{name}" for name in ("", ":entries", ":documents", ":log")))


@dataclass
class Follower:
    """A service that follows the document, with the version that it has reported last."""

    title: str
    port: int
    connection: Connection
    version: int = 0
    digest: str = ""

    @classmethod
    async def meet(cls, title: str, port: int) -> Follower:
        """Connect, and ask for the version."""
        follower = cls(title, port, await Connection.open(port))
        await follower.follow(1)
        return follower

    async def follow(self, version: int) -> None:
        """Wait until the service reports this version or a later one."""
        status, _head, body = await self.connection.get(f"/configuration?version={version}")
        if status != 200:
            raise RuntimeError(f"{self.title} does not follow to version {version}: {body.decode(errors='replace')}")
        told = json.loads(body)
        self.version, self.digest = told["version"], told["digest"]

    async def status(self, user: str, plan: str = "") -> int:
        """Send a request of a user, and give its status."""
        return (await self.connection.get(f"/?user={user}&plan={plan}"))[0]


def start(stack: contextlib.ExitStack, source: Source, each: int = 1, **environment: str) -> list[tuple[str, int]]:
    """Start this number of services of each language until the stack ends, and give their titles and ports."""
    services = [
        (
            title,
            stack.enter_context(
                Service(
                    f"configuration/{folder}",
                    source.url,
                    "",
                    POLYLIMIT_CONFIGURATION=source.configuration,
                    **environment,
                )
            ),
        )
        for _ in range(each)
        for folder, title in LANGUAGES.items()
    ]
    return [(title, service.port()) for title, service in services]
