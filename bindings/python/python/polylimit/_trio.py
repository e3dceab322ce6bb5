"""How a task of trio waits for the answer to a call."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polylimit._core import TrioCall


def is_running() -> bool:
    """Whether the caller is a task of trio."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


async def wait(call: TrioCall) -> Any:
    """Return the result of a call; a cancelled task ends it."""
    import trio

    try:
        while (result := call.take()) is None:
            await trio.lowlevel.wait_readable(call.fileno())
    except BaseException:
        call.cancel()
        raise
    return result[0]
