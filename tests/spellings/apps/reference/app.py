"""An application with a router of its own and polylimit in front of it, which shows what the driver finds.

With the environment variable POLYLIMIT_SPELLINGS_DEFECT one property of the router is not declared, or a limit is
attached as it must not be.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import polylimit
from polylimit import Limiter, RequestAttributes

from backend.router import PROPERTIES, QUOTAS, ROUTES, Router, document
from backend.service import Request, start

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the driver must find: the application's defects, with what each of them does.
DEFECTS = {
    "ignore_case": "the limiter does not know that the router ignores case",
    "parameters": "the limiter does not know that the router drops parameters",
    "suffix": "the limiter does not know that the router accepts a suffix",
    "readings": "rules count a path with its dot segments resolved only",
    "unlimited": "no limit is in effect",
    "too_strict": "a request counts twice",
    "head": "the limit on handlers counts HEAD under a name of its own",
    "method": "the limiter sees the method before an override",
    "target": "the limit on handlers counts each target for itself",
    "shared": "two handlers that are separate share a budget",
}
#: The properties of the router as a middleware passes them.
BITS = {"ignore_case": 1, "parameters": 2, "suffix": 4, "readings": 8}
DEFECT = os.environ.get("POLYLIMIT_SPELLINGS_DEFECT", "")


def everywhere(limiter: Limiter) -> Callable[[Request, str], bool]:
    """Return a limit in front of the router that counts every request."""

    def admits(request: Request, _: str) -> bool:
        cost = 2 if DEFECT == "too_strict" else 1
        return limiter.check(request.client, QUOTAS, cost=cost).allowed

    return admits


def on_handlers(limiter: Limiter, quotas: str = QUOTAS) -> Callable[[Request, str], bool]:
    """Return a limit that is attached to each handler."""

    def admits(request: Request, name: str) -> bool:
        if not name:
            return True
        budget = "all" if DEFECT == "shared" else name
        if DEFECT == "head" and request.method == "HEAD":
            budget += " HEAD"
        if DEFECT == "target":
            budget += request.path
        return limiter.check(f"{budget} {request.client}", quotas).allowed

    return admits


def by_rules(document: str, bits: dict[str, int]) -> Callable[[Request, str], bool]:
    """Return a limit in front of the router that leaves it to the rules of a document."""
    limiter = Limiter("memory:", document=document)
    router = sum(bit for name, bit in bits.items() if name != DEFECT)

    def admits(request: Request, _: str) -> bool:
        method = request.sent_method if DEFECT == "method" else request.method
        attributes = RequestAttributes(
            method=method, path=request.path, headers=request.headers.items(), router_paths=router
        )
        return limiter.decide(attributes).allowed

    return admits


def listen(site: str, handlers: str, admits: Callable[[Request, str], bool], router: Router | None = None) -> None:
    """Open a site, with a router that ignores everything unless another one is given."""
    limit = (lambda *_: True) if DEFECT == "unlimited" else admits
    print("listening", site, start(router or Router(), limit, overrides=True), handlers, flush=True)


def main() -> None:
    """Open the sites and wait until the driver is done."""
    if DEFECT and DEFECT not in DEFECTS:
        raise SystemExit(f"unknown defect {DEFECT!r}; allowed are {', '.join(DEFECTS)}")
    every = ",".join(ROUTES)
    listen("global", every, everywhere(Limiter("memory:")))
    listen("handlers", every, on_handlers(Limiter("memory:")))
    declared = document(frozenset(PROPERTIES) - {DEFECT})
    listen("path_rules", every, by_rules(declared, {"readings": BITS["readings"]}))
    listen("path_rules_of_a_middleware", every, by_rules(document(frozenset()), BITS))
    listen("path_rules_literal_dots", every, by_rules(document(frozenset()), BITS), Router(resolves_dots=False))
    listen("separate", "GET:/a/1,GET:/b/1", on_handlers(Limiter("memory:"), "1/hour fixed_window"))
    print("version reference", polylimit.__version__, flush=True)
    print("ready", flush=True)
    sys.stdin.read()


main()
