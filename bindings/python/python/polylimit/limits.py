"""A storage for the ``limits`` package: services that use it (Flask-Limiter, slowapi) move by changing one URL.

Import this module once; then ``polylimit+redis://host:port`` and the other URLs of :class:`polylimit.Limiter` with
``polylimit+`` before them are URLs of storages, and ``async+polylimit+...`` of asynchronous ones. Sentinels and
clusters may be written as ``limits`` does (``redis+sentinel://``).

What the interface of ``limits`` allows is exact: a window is counted and decided in one atomic step. What it does not
allow stays as it is there: the fixed window strategy counts what it denies, ``reset`` is refused (it would have to
forget every key), and the statistics of the sliding window counter are near, not exact.

While Redis cannot be asked, the outage policy answers. With ``fallback``, this process counts by itself; of a fixed window
it admits the whole limit, whatever ``fallback_share`` says, as the limit is not told here. With ``deny``,
:class:`polylimit.StoreUnavailableError` is raised, so that what services have for a storage that fails does its work,
such as ``in_memory_fallback`` and ``swallow_errors``.
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

_Answer = TypeVar("_Answer", bound="Decision | Usage")

#: As that package writes them, and ours.
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

#: The interface counts without telling the limit, so that of the quota is as high as one may be.
_UNLIMITED = 10**12

_NO_RESET = "polylimit cannot forget all keys at once: clear those that are meant, or use another prefix"

#: How long a store may take to answer when it is asked whether it does.
_CHECK_SECONDS = 1.0


def _url(uri: str | None) -> str:
    url = (uri or "").removeprefix("async+").removeprefix("polylimit+")
    scheme, separator, rest = url.partition("://")
    url = _SCHEMES_OF_LIMITS.get(scheme.lower(), scheme) + separator + rest
    # Others write the store of this process as memory://
    return "memory:" if url in ("", "memory://", "memory:") else url


def _fixed_window(expiry: int) -> str:
    return f"{_UNLIMITED}/{expiry}s fixed_window"


def _moving_window(limit: int, expiry: int) -> str:
    return f"{limit}/{expiry}s sliding_log"


def _sliding_window(limit: int, expiry: int) -> str:
    return f"{limit}/{expiry}s buckets=1"


def _window_of(key: str) -> tuple[int, int]:
    """Give limit and seconds of a key's window: its last parts are amount, multiples and unit."""
    try:
        _, amount, multiples, granularity = key.rsplit("/", 3)
        return int(amount), int(multiples) * int(GRANULARITIES[granularity].GRANULARITY.seconds)
    except (AttributeError, KeyError, ValueError):
        raise InvalidArgumentError(
            "the key is none of limits: allowed are those that end in amount, multiples and unit, "
            'as key_for of a RateLimitItem writes them, such as ".../100/1/minute"'
        ) from None


def _expiry_of(key: str) -> int:
    return _window_of(key)[1]


def _limit_of(key: str) -> int:
    return _window_of(key)[0]


def _answered(answer: _Answer) -> _Answer:
    """Refuse what ``deny`` says in place of the store: it is neither a denial nor a count."""
    if answer.source == "deny":
        raise StoreUnavailableError(f"the store cannot be asked: {answer.degraded}")
    return answer


def _count(answer: Decision | Usage) -> int:
    """Give the count of a fixed window: while the store cannot be asked, its limit is a share of that of the quota."""
    quota = _answered(answer).quotas[0]
    return quota.limit - quota.remaining


class PolylimitStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """Keeps the counts of ``limits`` in a store of polylimit; options are those of :class:`polylimit.Limiter`."""

    STORAGE_SCHEME = _SCHEMES

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)
        #: The limiter that does the counting.
        self.limiter = Limiter(_url(uri), **options)

    @property
    def storage(self) -> Limiter:
        """Give what keeps the counts, as other storages do; Flask-Limiter shows it."""
        return self.limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """Give what a store may raise."""
        return PolylimitError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count in a fixed window, and give the count."""
        return _count(self.limiter.charge(key, _fixed_window(expiry), cost=amount))

    def get(self, key: str) -> int:
        """Give the count of a fixed window."""
        return _count(self.limiter.peek(key, _fixed_window(_expiry_of(key))))

    def get_expiry(self, key: str) -> float:
        """Give the end of a fixed window, in seconds since the Unix epoch."""
        return time.time() + _answered(self.limiter.peek(key, _fixed_window(_expiry_of(key)))).reset_after

    def check(self) -> bool:
        """Tell whether the store answers."""
        try:
            self.limiter.ready(_CHECK_SECONDS)
        except StoreUnavailableError:
            return False
        return True

    def reset(self) -> int | None:
        """Refuse: there is no way to forget all keys at once."""
        raise NotImplementedError(_NO_RESET)

    def clear(self, key: str) -> None:
        """Forget a key, in every strategy."""
        expiry = _expiry_of(key)
        for quota in (_fixed_window(expiry), _moving_window(_limit_of(key), expiry)):
            _answered(self.limiter.reset(key, quota))
        self.clear_sliding_window(key, expiry)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a moving window, if it admits that."""
        return _answered(self.limiter.check(key, _moving_window(limit, expiry), cost=amount)).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Give the start of a moving window, in seconds since the Unix epoch, and its count."""
        quota = _moving_window(limit, expiry)
        seen = _answered(self.limiter.peek(key, quota))
        # One more than remains is admitted when the oldest entry leaves.
        next_one = _answered(self.limiter.peek(key, quota, cost=seen.remaining + 1))
        return _window(seen, next_one, limit, expiry)

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a sliding window of two counters, if it admits that."""
        return _answered(self.limiter.check(key, _sliding_window(limit, expiry), cost=amount)).allowed

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Give the weighted count as that of the current window, and when nothing counts any more."""
        limit = _limit_of(key)
        seen = _answered(self.limiter.peek(key, _sliding_window(limit, expiry)))
        return 0, 0.0, limit - seen.remaining, seen.reset_after

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget a sliding window."""
        _answered(self.limiter.reset(key, _sliding_window(_limit_of(key), expiry)))


class AsyncPolylimitStorage(AsyncStorage, AsyncMovingWindowSupport, AsyncSlidingWindowCounterSupport):
    """The same for ``limits.aio``."""

    STORAGE_SCHEME = [f"async+{scheme}" for scheme in _SCHEMES]  # noqa: RUF012

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: Any) -> None:  # noqa: FBT001, FBT002
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)
        #: The limiter that does the counting.
        self.limiter = AsyncLimiter(_url(uri), **options)

    @property
    def storage(self) -> AsyncLimiter:
        """Give what keeps the counts, as other storages do; Flask-Limiter shows it."""
        return self.limiter

    @property
    def base_exceptions(self) -> type[Exception]:
        """Give what a store may raise."""
        return PolylimitError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count in a fixed window, and give the count."""
        return _count(await self.limiter.charge(key, _fixed_window(expiry), cost=amount))

    async def get(self, key: str) -> int:
        """Give the count of a fixed window."""
        return _count(await self.limiter.peek(key, _fixed_window(_expiry_of(key))))

    async def get_expiry(self, key: str) -> float:
        """Give the end of a fixed window, in seconds since the Unix epoch."""
        return time.time() + _answered(await self.limiter.peek(key, _fixed_window(_expiry_of(key)))).reset_after

    async def check(self) -> bool:
        """Tell whether the store answers."""
        try:
            await self.limiter.ready(_CHECK_SECONDS)
        except StoreUnavailableError:
            return False
        return True

    async def reset(self) -> int | None:
        """Refuse: there is no way to forget all keys at once."""
        raise NotImplementedError(_NO_RESET)

    async def clear(self, key: str) -> None:
        """Forget a key, in every strategy."""
        expiry = _expiry_of(key)
        for quota in (_fixed_window(expiry), _moving_window(_limit_of(key), expiry)):
            _answered(await self.limiter.reset(key, quota))
        await self.clear_sliding_window(key, expiry)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a moving window, if it admits that."""
        return _answered(await self.limiter.check(key, _moving_window(limit, expiry), cost=amount)).allowed

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """Give the start of a moving window, in seconds since the Unix epoch, and its count."""
        quota = _moving_window(limit, expiry)
        seen = _answered(await self.limiter.peek(key, quota))
        next_one = _answered(await self.limiter.peek(key, quota, cost=seen.remaining + 1))
        return _window(seen, next_one, limit, expiry)

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Count in a sliding window of two counters, if it admits that."""
        return _answered(await self.limiter.check(key, _sliding_window(limit, expiry), cost=amount)).allowed

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Give the weighted count as that of the current window, and when nothing counts any more."""
        limit = _limit_of(key)
        seen = _answered(await self.limiter.peek(key, _sliding_window(limit, expiry)))
        return 0, 0.0, limit - seen.remaining, seen.reset_after

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget a sliding window."""
        _answered(await self.limiter.reset(key, _sliding_window(_limit_of(key), expiry)))


def _window(seen: Decision, next_one: Decision, limit: int, expiry: int) -> tuple[float, int]:
    now = time.time()
    # Of the limit that was told, whatever share of it decides: what is left of it is what is still admitted.
    count = limit - seen.remaining
    if count == 0 or next_one.retry_after is None:
        return now, count
    return now + next_one.retry_after - expiry, count
