"""A service in a language without the library, which asks `POST /v1/decide` of the server about each request.

The service passes method, target and fields as it received them. With POLYLIMIT_SPELLINGS_DEFECT the document lacks one
property of the router.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backend.programs import POLYLIMIT, Programs, version_of
from backend.router import PROPERTIES, ROUTES, Router, document
from backend.service import Request, start

if TYPE_CHECKING:
    from collections.abc import Callable

DEFECT = os.environ.get("POLYLIMIT_SPELLINGS_DEFECT", "")
EVERY = frozenset(PROPERTIES)


def asking(port: int, *, by_route: bool) -> Callable[[Request, str], bool]:
    """Return a limit that asks the server, with the route where the rules are about routes."""
    kept = threading.local()

    def admits(request: Request, name: str) -> bool:
        question = {
            "method": request.method,
            "path": request.path,
            "peer": request.client_address[0],
            "headers": list(request.headers.items()),
        }
        if by_route and name:
            question["attributes"] = {"route": ROUTES[name]}
        if not hasattr(kept, "connection"):
            kept.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        body = json.dumps(question)
        kept.connection.request("POST", "/v1/decide", body, {"content-type": "application/json"})
        response = kept.connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {answer}")
        return bool(answer["allowed"])

    return admits


def main() -> None:
    """Open the sites and wait until the driver is done."""
    with Programs() as programs:
        for site, properties, by in (
            ("path_rules", EVERY, "path"),
            ("path_rules_exact", frozenset(), "path"),
            ("route_rules", EVERY, "route"),
        ):
            port = programs.serve(document(properties - {DEFECT}, by))
            limit = asking(port, by_route=by == "route")
            print("listening", site, start(Router(properties), limit, overrides=True), ",".join(ROUTES), flush=True)
        print("version server", version_of(POLYLIMIT, "--version"), flush=True)
        print("note framework `polylimit serve`, `/v1/decide`", flush=True)
        print("note route if the caller passes it", flush=True)
        print("note ignores what `[paths]` declares", flush=True)
        print("ready", flush=True)
        sys.stdin.read()


main()
