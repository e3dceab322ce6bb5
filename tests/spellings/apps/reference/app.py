"""An application with a small router of its own and polylimit in front of it, which shows what the driver finds.

The router ignores nearly everything that a router can ignore, and the document's `[paths]` declares it. With the
environment variable POLYLIMIT_SPELLINGS_DEFECT one of its properties is not declared, or a limit is attached as it must
not be.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote

import polylimit
from polylimit import Limiter, RequestAttributes

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the driver must find: the application's defects, with what each of them does.
DEFECTS = {
    "ignore_case": "the document does not say that the router ignores case",
    "parameters": "the document does not say that the router drops parameters",
    "suffix": "the document does not say that the router accepts a suffix",
    "unlimited": "no limit is in effect",
    "too_strict": "a request counts twice",
    "head": "the limit on handlers counts HEAD under a name of its own",
    "method": "the limiter sees the method before an override",
    "target": "the limit on handlers counts each target for itself",
    "shared": "two handlers that are separate share a budget",
}
DEFECT = os.environ.get("POLYLIMIT_SPELLINGS_DEFECT", "")
QUOTAS = "3/hour fixed_window"
HANDLERS = {
    "login": ("POST", re.compile(r"/login")),
    "report": ("GET", re.compile(r"/report")),
    "user": ("GET", re.compile(r"/v1/users/[^/]+")),
}
ROUTER = {"ignore_case": "true", "parameters": '"drop"', "suffix": '"drop"'}
PATHS = (
    ""
    if os.environ.get("NOPATHS")
    else "[paths]\n" + "\n".join(f"{name} = {value}" for name, value in ROUTER.items() if name != DEFECT)
)
RULES = [("login", "POST", "/login"), ("report", "GET", "/report"), ("user", "GET", "/v1/users/{id}")]
DOCUMENT = f"polylimit = 1\n{PATHS}\n" + "".join(
    f"""
[policies.{name}]
quotas = "{QUOTAS}"
[[rules]]
match = {{ method = "{method}", path = "{path}" }}
apply = [{{ policy = "{name}", key = "{{header.x-client}}" }}]
"""
    for name, method, path in RULES
)


def find_path(target: str) -> str:
    """Return the path that the router compares."""
    path = re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", "", target)
    path = re.split(r"[?#]", path, maxsplit=1)[0]
    segments: list[str] = []
    for segment in unquote(path.lower()).split("/"):
        name = segment.split(";")[0]
        if name == "..":
            del segments[-1:]
        elif name not in ("", "."):
            segments.append(name)
    return "/" + re.sub(r"\.[a-z]+$", "", "/".join(segments))


class Request(BaseHTTPRequestHandler):
    """A request; each site has a class of its own with its way of attaching a limit."""

    protocol_version = "HTTP/1.1"
    admits: Callable[[Request, str], bool]
    counts: Counter[tuple[str, str]]
    lock: threading.Lock

    def __getattr__(self, name: str) -> object:
        """Return the function for any method."""
        if name.startswith("do_"):
            return self.respond
        raise AttributeError(name)

    def respond(self) -> None:
        """Route the request, decide, and run the handler."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.close_connection |= "transfer-encoding" in self.headers
        override = self.headers.get("x-http-method-override", "")
        self.seen = self.command
        if self.command == "POST" and override.upper() in ("GET", "HEAD", "PUT"):
            self.command = override.upper()
        if DEFECT != "method":
            self.seen = self.command
        name = self.route()
        if DEFECT != "unlimited" and not self.admits(self, name):
            self.reply(429)
        elif not name:
            self.reply(404)
        else:
            client = self.headers.get("x-client", "")
            with self.lock:
                self.counts[name, client] += 1
                runs = self.counts[name, client]
            self.reply(200, f"{name}={runs}")

    def route(self) -> str:
        """Return the name of the handler; empty when the router has none."""
        path = find_path(self.path)
        method = "GET" if self.command == "HEAD" else self.command
        for name, (of, pattern) in HANDLERS.items():
            if method == of and pattern.fullmatch(path):
                return name
        found = re.fullmatch(r"/(a|b)/1", path)
        return found[1] if found and method == "GET" else ""

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


def everywhere(limiter: Limiter) -> Callable[[Request, str], bool]:
    """Return a limit in front of the router that counts every request."""

    def admits(request: Request, _: str) -> bool:
        cost = 2 if DEFECT == "too_strict" else 1
        return limiter.check(request.headers.get("x-client", ""), QUOTAS, cost=cost).allowed

    return admits


def on_handlers(limiter: Limiter, quotas: str = QUOTAS) -> Callable[[Request, str], bool]:
    """Return a limit that is attached to each handler."""

    def admits(request: Request, name: str) -> bool:
        if not name:
            return True
        budget = "all" if DEFECT == "shared" else name
        if DEFECT == "head" and request.command == "HEAD":
            budget += " HEAD"
        if DEFECT == "target":
            budget += request.path
        return limiter.check(f"{budget} {request.headers.get('x-client', '')}", quotas).allowed

    return admits


def by_rules(limiter: Limiter) -> Callable[[Request, str], bool]:
    """Return a limit in front of the router that leaves it to the rules of a document."""

    def admits(request: Request, _: str) -> bool:
        attributes = RequestAttributes(method=request.seen, path=request.path, headers=request.headers.items())
        return limiter.decide(attributes).allowed

    return admits


def listen(site: str, handlers: str, admits: Callable[[Request, str], bool]) -> None:
    """Open a site."""
    own = type(site, (Request,), {"admits": staticmethod(admits), "counts": Counter(), "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("listening", site, server.server_port, handlers, flush=True)


def main() -> None:
    """Open the sites and wait until the driver is done."""
    if DEFECT and DEFECT not in DEFECTS:
        raise SystemExit(f"unknown defect {DEFECT!r}; allowed are {', '.join(DEFECTS)}")
    every = ",".join(HANDLERS)
    listen("global", every, everywhere(Limiter("memory:")))
    listen("handlers", every, on_handlers(Limiter("memory:")))
    listen("path_rules", every, by_rules(Limiter("memory:", document=DOCUMENT)))
    listen("separate", "GET:/a/1,GET:/b/1", on_handlers(Limiter("memory:"), "1/hour fixed_window"))
    print("version reference", polylimit.__version__, flush=True)
    print("ready", flush=True)
    sys.stdin.read()


main()
