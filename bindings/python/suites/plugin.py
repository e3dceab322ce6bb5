"""A pytest plugin that makes the suites of limits and Flask-Limiter test the storages of polylimit.

A test that creates a storage in memory, or in the server that run.py starts, gets one of polylimit. The clock in memory
follows ``time.time``, which some tests change. The tests in refused.py have to fail, and no other test may.
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
#: The URL at which the suite expects its server; run.py starts one there.
SERVER = os.environ["POLYLIMIT_SUITE_SERVER"]
#: Marks of tests that need other servers.
OTHER_SERVERS = {"memcached", "mongodb", "redis_cluster", "redis_sentinel", "valkey", "valkey_cluster"}


class Following:
    """A limiter whose clock is set to ``time.time`` before each call."""

    def __init__(self, limiter: Any, clock: ManualClock) -> None:
        self._limiter = limiter
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        self._clock.set(max(time.time(), self._clock.now))
        return getattr(self._limiter, name)


def follow(kind: type) -> None:
    """Make the storages in memory follow ``time.time``."""
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
    """Return the URL of the storage of polylimit that replaces one of limits."""
    prefix, url = ("async+", uri.removeprefix("async+")) if uri.startswith("async+") else ("", uri)
    # On a busy machine a decision may take long.
    slow = f"{url.rstrip('/')}?deadline=10s" if url.startswith(SERVER) else url
    is_ours = url in ("memory://", "memory:") or url.startswith(SERVER)
    return f"{prefix}polylimit+{slow}" if is_ours else uri


make_storage = limits.storage.storage_from_string
#: Options that only the clients of other storages take.
CLIENT_OPTIONS = {"implementation"}


def storage_from_string(storage_string: str, **options: Any) -> Any:
    uri = substitute(storage_string)
    if uri != storage_string:
        options = {name: value for name, value in options.items() if name not in CLIENT_OPTIONS}
    return make_storage(uri, **options)


limits.storage.storage_from_string = storage_from_string
for kind in (polylimit.limits.PolylimitStorage, polylimit.limits.AsyncPolylimitStorage):
    follow(kind)


class Services:
    """Replaces the fixture that starts the servers of a suite: the server already runs."""

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
    """Return whether a test needs only storages in memory and the server."""
    uri = str(getattr(getattr(item, "callspec", None), "params", {}).get("uri", ""))
    plain = uri.removeprefix("async+")
    has_server = "redis" not in plain or plain.startswith(SERVER)
    fixtures = set(getattr(item, "fixturenames", ()))
    return (
        has_server
        and not OTHER_SERVERS & {mark.name for mark in item.iter_markers()}
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
                # A test that passes must be removed from refused.py.
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    if unused:
        raise pytest.UsageError(f"no test is named by these lines of refused.py: {', '.join(unused)}")
