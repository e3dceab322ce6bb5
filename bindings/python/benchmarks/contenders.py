"""What is measured: each contender decides about the same keys by the same limit."""

from __future__ import annotations

import limits
import limits.aio.storage
import limits.aio.strategies
import limits.strategies
import pyrate_limiter
import redis
import redis.asyncio
from limits.storage import storage_from_string
from polylimit import AsyncLimiter, Limiter

ALLOWED = 10**9
DENIED = 1


class Polylimit:
    name = "polylimit"
    has_keys = True
    has_threads = True

    def __init__(self, url, limit):
        self.limiter = Limiter("memory:" if url is None else url, {"api": f"{limit}/day"}, max_keys=2_000_000)

    def check(self, key):
        return self.limiter.check(key).allowed


class Limits:
    has_keys = True
    has_threads = True

    def __init__(self, url, limit, strategy):
        storage = storage_from_string("memory://" if url is None else url)
        self.limiter = getattr(limits.strategies, strategy)(storage)
        self.item = limits.RateLimitItemPerDay(limit)

    def check(self, key):
        return self.limiter.hit(self.item, key)


class LimitsFixed(Limits):
    name = "limits, fixed window"

    def __init__(self, url, limit):
        super().__init__(url, limit, "FixedWindowRateLimiter")


class LimitsSliding(Limits):
    name = "limits, sliding counter"

    def __init__(self, url, limit):
        super().__init__(url, limit, "SlidingWindowCounterRateLimiter")


class Pyrate:
    name = "pyrate-limiter"
    # It has a bucket for each key, which the caller keeps.
    has_keys = False
    # It denies without asking while another thread holds its lock: 1,400 of 1,600 that were within the limit.
    has_threads = False

    def __init__(self, url, limit):
        rates = [pyrate_limiter.Rate(limit, pyrate_limiter.Duration.DAY)]
        if url is None:
            bucket = pyrate_limiter.InMemoryBucket(rates)
        else:
            bucket = pyrate_limiter.RedisBucket.init(rates, redis.Redis.from_url(url), f"pyrate {limit}")
        self.limiter = pyrate_limiter.Limiter(bucket)

    def check(self, key):
        return self.limiter.try_acquire(key, blocking=False)


class AsyncPolylimit:
    name = "polylimit"
    has_keys = True

    def __init__(self, url, limit):
        self.limiter = AsyncLimiter("memory:" if url is None else url, {"api": f"{limit}/day"}, max_keys=2_000_000)

    async def start(self):
        pass

    async def check(self, key):
        return await self.limiter.check(key)


class AsyncLimits:
    has_keys = True

    def __init__(self, url, limit, strategy):
        if url is None:
            storage = storage_from_string("async+memory://")
        else:
            storage = storage_from_string(f"async+{url}", implementation="redispy")
        self.limiter = getattr(limits.aio.strategies, strategy)(storage)
        self.item = limits.RateLimitItemPerDay(limit)

    async def start(self):
        pass

    async def check(self, key):
        return await self.limiter.hit(self.item, key)


class AsyncLimitsFixed(AsyncLimits):
    name = "limits, fixed window"

    def __init__(self, url, limit):
        super().__init__(url, limit, "FixedWindowRateLimiter")


class AsyncLimitsSliding(AsyncLimits):
    name = "limits, sliding counter"

    def __init__(self, url, limit):
        super().__init__(url, limit, "SlidingWindowCounterRateLimiter")


class AsyncPyrate:
    name = "pyrate-limiter"
    has_keys = False

    def __init__(self, url, limit):
        self._url = url
        self._rates = [pyrate_limiter.Rate(limit, pyrate_limiter.Duration.DAY)]
        self._name = f"pyrate async {limit}"

    async def start(self):
        if self._url is None:
            bucket = pyrate_limiter.InMemoryBucket(self._rates)
        else:
            client = redis.asyncio.Redis.from_url(self._url)
            bucket = await pyrate_limiter.RedisBucket.init(self._rates, client, self._name)
        self.limiter = pyrate_limiter.Limiter(bucket)

    async def check(self, key):
        return await self.limiter.try_acquire_async(key, blocking=False)


SYNC = [Polylimit, LimitsFixed, LimitsSliding, Pyrate]
ASYNC = [AsyncPolylimit, AsyncLimitsFixed, AsyncLimitsSliding, AsyncPyrate]
