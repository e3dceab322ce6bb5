"""The threads on which a program's function gives the credentials of connections."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

#: The servers whose threads a forked child has to start again.
_servers: weakref.WeakSet[Any] = weakref.WeakSet()


def serve(server: Any) -> None:
    """Serve the calls of a function, on a thread of its own."""
    _servers.add(server)
    _start(server)


def _start(server: Any) -> None:
    # A thread of the system: a greenlet would stop its thread's others while it waits, and would have to be driven.
    monkey, patcher = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if monkey is not None:
        start = monkey.get_original("_thread", "start_new_thread")
    elif patcher is not None:
        start = patcher.original("_thread").start_new_thread
    else:
        from _thread import start_new_thread as start
    # It holds the server until the limiter is gone; such a thread does not keep the interpreter from ending.
    start(server.serve, ())


def _after_fork() -> None:
    for server in list(_servers):
        _start(server)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
