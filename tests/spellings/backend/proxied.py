"""Services behind a proxy that asks `/v1/forward` of the server about each request."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .programs import Programs, free_port
from .router import PROPERTIES, ROUTES, Router, document
from .service import start

if TYPE_CHECKING:
    from collections.abc import Callable

DEFECT = os.environ.get("POLYLIMIT_SPELLINGS_DEFECT", "")


def run(name: str, version: str, command: Callable[[Programs, list[tuple[int, int, int]]], list[str]]) -> None:
    """Open the sites of a proxy and wait until the driver is done.

    `command` gives the command of the proxy for its sites: the port of each, of its service, and of the server to ask.
    """
    with Programs() as programs:
        sites = {"path_rules": frozenset(PROPERTIES), "path_rules_exact": frozenset[str]()}
        # The proxy asks before the service can replace a method, so this service replaces none.
        ports = [
            (
                free_port(),
                start(Router(properties), lambda *_: True),
                programs.serve(document(properties - {DEFECT})),
            )
            for properties in sites.values()
        ]
        programs.start(command(programs, ports), ports[0][0])
        for site, (port, _, _) in zip(sites, ports, strict=True):
            print("listening", site, port, ",".join(ROUTES), flush=True)
        print("version", name, version, flush=True)
        print("note route no", flush=True)
        print("note ignores what `[paths]` declares", flush=True)
        print("ready", flush=True)
        sys.stdin.read()
