"""Serves sites, each an ASGI application on a port of its own, with uvicorn in one process."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Callable

QUOTAS = "3/hour fixed_window"
CLIENT = "x-client"
HANDLERS = "login,report,user"


def document(attribute: str) -> str:
    """Return a document whose rules name handlers by an attribute: `path` or `route`."""
    handlers = {"login": ("POST", "/login"), "report": ("GET", "/report"), "user": ("GET", "/v1/users/{id}")}
    parts = ["polylimit = 1"]
    parts += [f'[policies.{name}]\nquotas = "{QUOTAS}"' for name in handlers]
    parts += [
        f'[[rules]]\nmatch = {{ method = "{method}", {attribute} = "{pattern}" }}\n'
        f'apply = [{{ policy = "{name}", key = "{{header.{CLIENT}}}" }}]'
        for name, (method, pattern) in handlers.items()
    ]
    return "\n".join(parts)


class Runs:
    """Counts the executions of the handlers of a site."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, str]] = Counter()

    def of(self, handler: str, client: str) -> dict[str, str]:
        """Count an execution for a client; return the field of the response that says how many there were."""
        self._counted[handler, client] += 1
        return {"x-runs": f"{handler}={self._counted[handler, client]}"}


def serve(sites: dict[str, tuple[Callable[[], Any], str]], versions: dict[str, str]) -> None:
    """Serve sites until standard input is closed; each has a function that makes its application, and its handlers."""
    asyncio.run(_serve(sites, versions))


async def _serve(sites: dict[str, tuple[Callable[[], Any], str]], versions: dict[str, str]) -> None:
    servers = []
    for name, (make, handlers) in sites.items():
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(make(), lifespan="off", log_level="error", timeout_graceful_shutdown=1)
        servers.append((uvicorn.Server(config), listener))
        print("listening", name, listener.getsockname()[1], handlers)
    for framework, version in versions.items():
        print("version", framework, version)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()

    def end_all() -> None:
        for server, _ in servers:
            server.should_exit = True

    def end_with_input() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(end_all)

    threading.Thread(target=end_with_input, daemon=True).start()
    await asyncio.gather(*(server.serve(sockets=[listener]) for server, listener in servers))
