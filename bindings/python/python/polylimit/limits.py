"""A storage for the ``limits`` package: services that use it (Flask-Limiter, slowapi) move by changing one URL.

Import this module once. Then ``polylimit+redis://host:port``, and every other URL of :class:`polylimit.Limiter` after
``polylimit+``, is the URL of a storage, and ``async+polylimit+...`` that of an asynchronous one. Sentinels and clusters
may also be written as ``limits`` does (``redis+sentinel://``).

Windows are exact: each is counted and decided in one atomic step. As with other storages, the fixed window
strategy counts the requests that it denies. ``reset`` is refused because it would have to forget every key, and the
statistics of the sliding window counter are approximate.

While Redis is unavailable, the outage policy decides. With ``fallback``, this process counts on its own; under a fixed
window it admits the whole limit, whatever ``fallback_share`` is, because ``limits`` does not pass the limit. With
``deny``, :class:`polylimit.StoreUnavailableError` is raised, so that ``in_memory_fallback`` and ``swallow_errors``
take effect.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from limits.aio.storage import MovingWindowSupport as AsyncMovingWindowSupport
from limits.aio.storage import SlidingWindowCounterSupport as AsyncSlidingWindowCounterSupport
from limits.aio.storage import Storage as AsyncStorage
from limits.limits import GRANULARITIES
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage

from polylimit._core import AsyncLimiter, InvalidArgumentError, Limiter, PolylimitError, StoreUnavailableError

if TYPE_CHECKING:
    from polylimit._core import Decision, Usage

__all__ = ["AsyncPolylimitStorage", "PolylimitStorage"]

_Result = TypeVar("_Result", bound="Decision | Usage")

#: The URL schemes of ``limits``, with those of polylimit.
_SCHEMES_OF_LIMITS = {
    "redis+sentinel": "redis-sentinel",
    "rediss+sentinel": "rediss-sentinel",
    "redis+cluster": "redis-cluster",
    "rediss+cluster": "rediss-cluster",
}

_SCHEMES = [
    f"polylimit+{scheme}"
    for scheme in (
        "memory",
        "local",
        "redis",
        "rediss",
        "redis+unix",
        "redis-sentinel",
        "rediss-sentinel",
        "redis-cluster",
        "rediss-cluster",
        "file",
        *_SCHEMES_OF_LIMITS,
    )
]

#: The limit of fixed windows, the highest that a quota may have: ``limits`` counts without passing its limit.
_UNLIMITED = 10**12

_NO_RESET = "polylimit cannot forget all keys at once: clear those that are meant, or use another prefix"

#: How long ``check`` waits for the store, in seconds.
_CHECK_SECONDS = 1.0


def _url(uri: str | None) -> str:
    url = (uri or "").removeprefix("async+").removeprefix("polylimit+")
    scheme, separator, rest = url.partition("://")
    url = _SCHEMES_OF_LIMITS.get(scheme.lower(), scheme) + separator + rest
    # `limits` writes the store of this process as memory://
    return "memory:" if url in ("", "memory://", "memory:") else url


def _fixed_window(expiry: int) -> str:
    return f"{_UNLIMITED}/{expiry}s fixed_window"


def _moving_window(limit: int, expiry: int) -> str:
    return f"{limit}/{expiry}s sliding_log"


def _sliding_window(limit: int, expiry: int) -> str:
    return f"{limit}/{expiry}s buckets=1"


def _window_of(key: str) -> tuple[int, int]:
    """Return the limit and the seconds of a key's window: its last parts are amount, multiples and unit."""
    try:
        _, amount, multiples, granularity = key.rsplit("/", 3)
        return int(amount), int(multiples) * int(GRANULARITIES[granularity].GRANULARITY.seconds)
    except (AttributeError, KeyError, ValueError):
        raise InvalidArgumentError(
            "the key was not made by limits: allowed are those that end in amount, multiples and unit, "
            'as key_for of a RateLimitItem writes them, such as ".../100/1/minute"'
        ) from None


def _expiry_of(key: str) -> int:
    return _window_of(key)[1]


def _limit_of(key: str) -> int:
    return _window_of(key)[0]


def _require_store(result: _Result) -> _Result:
    """Raise if the outage policy ``deny`` decided: its result is neither a denial of the store nor a count."""
    if result.source == "deny":
        raise StoreUnavailableError(f"the store is unavailable: {result.degraded}")
    return result


def _count(result: Decision | Usage) -> int:
    """Return the count of a fixed window. The limit is read from the result: the fallback has only a share of it."""
    quota = _require_store(result).quotas[0]
    return quota.limit - quota.remaining


class PolylimitStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """Keeps the counts of ``limits`` in a store of polylimit; options are those of :class:`polylimit.Limiter`."""

    STORAGE_SCHEME = _SCHEMES

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)
        #: The limiter that counts.
        self.limiter = Limiter(_url(uri), **options)

    @property
    def storage(self) -> Limiter:
        """Return the limiter, as other storages return their client; Flask-Limiter shows it."""
        return self.limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """Return the base class of the errors of a store."""
        return PolylimitError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count in a fixed window, and return the count."""
        return _count(self.limiter.charge(key, _fixed_window(expiry), cost=amount))

    def get(self, key: str) -> int:
        """Return the count of a fixed window."""
        return _count(self.limiter.peek(key, _fixed_window(_expiry_of(key))))

    def get_expiry(self, key: str) -> float:
        """Return the end of a fixed window, in seconds since the Unix epoch."""
        return time.time() + _require_store(self.limiter.peek(key, _fixed_window(_expiry_of(key)))).reset_after

    def check(self) -> bool:
        """Return whether the store answers."""
        try:
            self.limiter.ready(_CHECK_SECONDS)
        except StoreUnavailableError:
            return False
        return True

    def reset(self) -> int | None:
        """Raise: a store cannot forget all keys at once."""
        raise NotImplementedError(_NO_RESET)

    def clear(self, key: str) -> None:
        """Forget a key, in every strategy."""
        expiry = _expiry_of(key)
        for quota in (_fixed_window(expiry), _moving_window(_limit_of(key), expiry)):
            _require_store(self.limiter.reset(key, quota))
        self.clear_sliding_window(key, expiry)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a moving window, if it admits the amount."""
        return _require_store(self.limiter.check(key, _moving_window(limit, expiry), cost=amount)).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return the start of a moving window, in seconds since the Unix epoch, and its count."""
        quota = _moving_window(limit, expiry)
        seen = _require_store(self.limiter.peek(key, quota))
        # The oldest entry leaves the window when one unit more than remains is admitted.
        next_one = _require_store(self.limiter.peek(key, quota, cost=seen.remaining + 1))
        return _window(seen, next_one, limit, expiry)

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a sliding window of two counters, if it admits the amount."""
        return _require_store(self.limiter.check(key, _sliding_window(limit, expiry), cost=amount)).allowed

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return the weighted count as that of the current window, and the seconds until nothing counts."""
        limit = _limit_of(key)
        seen = _require_store(self.limiter.peek(key, _sliding_window(limit, expiry)))
        return 0, 0.0, limit - seen.remaining, seen.reset_after

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget a sliding window."""
        _require_store(self.limiter.reset(key, _sliding_window(_limit_of(key), expiry)))


class AsyncPolylimitStorage(AsyncStorage, AsyncMovingWindowSupport, AsyncSlidingWindowCounterSupport):
    """The storage for ``limits.aio``."""

    STORAGE_SCHEME = [f"async+{scheme}" for scheme in _SCHEMES]  # noqa: RUF012

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)
        #: The limiter that counts.
        self.limiter = AsyncLimiter(_url(uri), **options)

    @property
    def storage(self) -> AsyncLimiter:
        """Return the limiter, as other storages return their client; Flask-Limiter shows it."""
        return self.limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """Return the base class of the errors of a store."""
        return PolylimitError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count in a fixed window, and return the count."""
        return _count(await self.limiter.charge(key, _fixed_window(expiry), cost=amount))

    async def get(self, key: str) -> int:
        """Return the count of a fixed window."""
        return _count(await self.limiter.peek(key, _fixed_window(_expiry_of(key))))

    async def get_expiry(self, key: str) -> float:
        """Return the end of a fixed window, in seconds since the Unix epoch."""
        return time.time() + _require_store(await self.limiter.peek(key, _fixed_window(_expiry_of(key)))).reset_after

    async def check(self) -> bool:
        """Return whether the store answers."""
        try:
            await self.limiter.ready(_CHECK_SECONDS)
        except StoreUnavailableError:
            return False
        return True

    async def reset(self) -> int | None:
        """Raise: a store cannot forget all keys at once."""
        raise NotImplementedError(_NO_RESET)

    async def clear(self, key: str) -> None:
        """Forget a key, in every strategy."""
        expiry = _expiry_of(key)
        for quota in (_fixed_window(expiry), _moving_window(_limit_of(key), expiry)):
            _require_store(await self.limiter.reset(key, quota))
        await self.clear_sliding_window(key, expiry)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a moving window, if it admits the amount."""
        return _require_store(await self.limiter.check(key, _moving_window(limit, expiry), cost=amount)).allowed

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Return the start of a moving window, in seconds since the Unix epoch, and its count."""
        quota = _moving_window(limit, expiry)
        seen = _require_store(await self.limiter.peek(key, quota))
        next_one = _require_store(await self.limiter.peek(key, quota, cost=seen.remaining + 1))
        return _window(seen, next_one, limit, expiry)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a sliding window of two counters, if it admits the amount."""
        return _require_store(await self.limiter.check(key, _sliding_window(limit, expiry), cost=amount)).allowed

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Return the weighted count as that of the current window, and the seconds until nothing counts."""
        limit = _limit_of(key)
        seen = _require_store(await self.limiter.peek(key, _sliding_window(limit, expiry)))
        return 0, 0.0, limit - seen.remaining, seen.reset_after

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget a sliding window."""
        _require_store(await self.limiter.reset(key, _sliding_window(_limit_of(key), expiry)))


def _window(seen: Decision, next_one: Decision, limit: int, expiry: int) -> tuple[float, int]:
    now = time.time()
    # The count is relative to the limit of the caller, even where the fallback admits only a share of it.
    count = limit - seen.remaining
    if count == 0 or next_one.retry_after is None:
        return now, count
    return now + next_one.retry_after - expiry, count
