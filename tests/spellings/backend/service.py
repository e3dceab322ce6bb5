"""Handlers that count their own executions, on the server of the standard library."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .router import Router

#: The status of a denial.
OVER = 429


class Request(BaseHTTPRequestHandler):
    """A request. Each service has a class of its own, with its router and its limit."""

    protocol_version = "HTTP/1.1"
    router: Router
    #: The limit: decides about a request, given the name of its handler, which is empty when there is none.
    admits: Callable[[Request, str], bool]
    overrides: bool
    counts: Counter[tuple[str, str]]
    lock: threading.Lock
    #: The method as it was sent, and as the handler sees it.
    sent_method = ""
    method = ""

    def __getattr__(self, name: str) -> object:
        """Return the function for any method."""
        if name.startswith("do_"):
            return self.respond
        raise AttributeError(name)

    @property
    def client(self) -> str:
        """The client that the driver names."""
        return self.headers.get("x-client", "")

    def respond(self) -> None:
        """Route the request, decide, and run the handler."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.close_connection |= "transfer-encoding" in self.headers
        self.sent_method = self.method = self.command
        override = self.headers.get("x-http-method-override", "").upper()
        if self.overrides and self.command == "POST" and override in ("GET", "HEAD", "PUT"):
            self.method = override
        name = self.router.find(self.method, self.path)
        if not self.admits(self, name):
            self.reply(OVER)
        elif not name:
            self.reply(404)
        else:
            with self.lock:
                self.counts[name, self.client] += 1
                runs = self.counts[name, self.client]
            self.reply(200, f"{name}={runs}")

    def reply(self, status: int, runs: str = "") -> None:
        """Send a response."""
        self.send_response(status)
        if runs:
            self.send_header("x-runs", runs)
        self.send_header("content-length", "0")
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Write no log."""


def start(router: Router, admits: Callable[[Request, str], bool], *, overrides: bool = False) -> int:
    """Start a service and return its port."""
    members = {
        "router": router,
        "admits": staticmethod(admits),
        "overrides": overrides,
        "counts": Counter(),
        "lock": threading.Lock(),
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("SiteRequest", (Request,), members))
    server.request_queue_size = 64
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
