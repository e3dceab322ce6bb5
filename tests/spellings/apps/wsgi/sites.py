"""Serves sites, each a WSGI application on a port of its own, with gunicorn in one process."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from gunicorn.app.base import BaseApplication

if TYPE_CHECKING:
    from collections.abc import Callable

QUOTAS = "3/hour fixed_window"
CLIENT = "x-client"


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
        self._lock = threading.Lock()

    def of(self, handler: str, client: str) -> dict[str, str]:
        """Count an execution for a client; return the field of the response that says how many there were."""
        with self._lock:
            self._counted[handler, client] += 1
            return {"x-runs": f"{handler}={self._counted[handler, client]}"}


class Server(BaseApplication):
    """A gunicorn that serves all sites."""

    def __init__(self, make: Callable[[], dict[str, Any]], sockets: dict[str, socket.socket]) -> None:
        self._make = make
        self._descriptors = [one.fileno() for one in sockets.values()]
        self._ports = {name: one.getsockname()[1] for name, one in sockets.items()}
        super().__init__()

    def load_config(self) -> None:
        """Set the options of gunicorn."""
        self.cfg.set("bind", [f"fd://{number}" for number in self._descriptors])
        self.cfg.set("worker_class", "gthread")
        self.cfg.set("threads", 8)
        self.cfg.set("graceful_timeout", 1)
        self.cfg.set("loglevel", "error")

    def load(self) -> Callable[..., Any]:
        """Make the applications, in the process that serves them."""
        made = self._make()
        ports = {port: made[name] for name, port in self._ports.items()}

        def choose(environ: dict[str, Any], start_response: Any) -> Any:
            return ports[environ["gunicorn.socket"].getsockname()[1]](environ, start_response)

        return choose


def serve(make: Callable[[], dict[str, Any]], handlers: dict[str, str], versions: dict[str, str]) -> None:
    """Serve sites by their names until standard input is closed; `make` returns their applications."""
    sockets = {}
    for name, listed in handlers.items():
        sockets[name] = one = socket.socket()
        one.bind(("127.0.0.1", 0))
        one.listen(128)
        print("listening", name, one.getsockname()[1], listed)
    for framework, version in versions.items():
        print("version", framework, version)
    print("ready", flush=True)

    def end_with_input() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_input, daemon=True).start()
    Server(make, sockets).run()
