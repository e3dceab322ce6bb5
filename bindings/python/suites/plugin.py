"""Has the suites of limits and Flask-Limiter test our storages in place of theirs; a plugin of pytest.

Where a test asks for a storage in memory or in the server that run.py starts, it gets ours. The clock of the one in
memory follows ``time.time``, which some tests turn. What is refused on purpose has to fail, and nothing else may.
"""

from __future__ import annotations

import os
import time
from typing import Any

import limits.aio.storage
import limits.storage
import polylimit.limits
import pytest
from polylimit import ManualClock
from refused import REFUSED

SUITE = os.environ["POLYLIMIT_SUITE"]
#: The URL that the suite has for its server, which run.py starts there.
SERVER = os.environ["POLYLIMIT_SUITE_SERVER"]
#: Marks of tests that need other servers.
OTHERS = {"memcached", "mongodb", "redis_cluster", "redis_sentinel", "valkey", "valkey_cluster"}


class Following:
    """A limiter whose clock is set to ``time.time`` before each call."""

    def __init__(self, limiter: Any, clock: ManualClock) -> None:
        self._limiter = limiter
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        self._clock.set(max(time.time(), self._clock.now))
        return getattr(self._limiter, name)


def follow(kind: type) -> None:
    """Have the storages in memory follow ``time.time``."""
    make = kind.__init__

    def init(self: Any, uri: str | None = None, wrap_exceptions: bool = False, **options: Any) -> None:
        if "memory:" not in (uri or ""):
            make(self, uri, wrap_exceptions, **options)
            return
        clock = ManualClock(time.time())
        make(self, uri, wrap_exceptions, clock=clock, **options)
        self.limiter = Following(self.limiter, clock)

    kind.__init__ = init


def substitute(uri: str) -> str:
    """Give the URL of our storage in the place of theirs."""
    prefix, url = ("async+", uri.removeprefix("async+")) if uri.startswith("async+") else ("", uri)
    # A decision may take as long as it needs on a busy machine.
    slow = f"{url.rstrip('/')}?deadline=10s" if url.startswith(SERVER) else url
    is_ours = url in ("memory://", "memory:") or url.startswith(SERVER)
    return f"{prefix}polylimit+{slow}" if is_ours else uri


make_storage = limits.storage.storage_from_string
#: What only the clients of other storages take.
OF_CLIENTS = {"implementation"}


def storage_from_string(storage_string: str, **options: Any) -> Any:
    uri = substitute(storage_string)
    if uri != storage_string:
        options = {name: value for name, value in options.items() if name not in OF_CLIENTS}
    return make_storage(uri, **options)


limits.storage.storage_from_string = storage_from_string
for kind in (polylimit.limits.PolylimitStorage, polylimit.limits.AsyncPolylimitStorage):
    follow(kind)


class Services:
    """Stands for what starts the servers of a suite: the one that is used runs already."""

    def start(self, *_names: str) -> None:
        """Do nothing."""

    def wait_for_service(self, *_arguments: Any) -> None:
        """Do nothing."""

    def __getattr__(self, _name: str) -> Any:
        return self.wait_for_service


@pytest.fixture(scope="session")
def docker_services() -> Services:
    return Services()


def is_possible(item: pytest.Item) -> bool:
    """Tell whether a test needs nothing but storages in memory and the server."""
    uri = str(getattr(getattr(item, "callspec", None), "params", {}).get("uri", ""))
    plain = uri.removeprefix("async+")
    has_server = "redis" not in plain or plain.startswith(SERVER)
    fixtures = set(getattr(item, "fixturenames", ()))
    return (
        has_server
        and not OTHERS & {mark.name for mark in item.iter_markers()}
        and not {"memcached_connection", "mongo_connection"} & fixtures
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    possible = [item for item in items if is_possible(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in possible])
    items[:] = possible
    unused = dict(REFUSED[SUITE])
    for item in items:
        for part, reason in REFUSED[SUITE].items():
            if item.nodeid.endswith(part) or item.nodeid.partition("[")[0].endswith(part):
                unused.pop(part, None)
                # One that passes is no longer refused: its line has to go.
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    if unused:
        raise pytest.UsageError(f"no test is named by these lines of refused.py: {', '.join(unused)}")
