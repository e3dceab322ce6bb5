"""How a greenlet of gevent or eventlet waits for a descriptor, so that the others of its thread run meanwhile."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: The modules of the standard library that wait; a program that works with greenlets has replaced them.
_PATCHED = ("socket", "threading", "thread")


def wait_function() -> Callable[[int], Any] | None:
    """Return what waits until a descriptor can be read; ``None`` where the thread has to wait.

    That is so in a program that has not patched the standard library, and in the greenlet of the hub itself, which
    must not wait.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(map(monkey.is_module_patched, _PATCHED)):
        import gevent
        from gevent.socket import wait_read

        return None if gevent.getcurrent() is gevent.get_hub() else wait_read
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(map(patcher.is_monkey_patched, _PATCHED)):
        from eventlet import greenthread, hubs

        if hubs.get_hub().greenlet is greenthread.getcurrent():
            return None
        return _wait_in_eventlet
    return None


def _wait_in_eventlet(descriptor: int) -> None:
    from eventlet import hubs

    hubs.trampoline(descriptor, read=True)
