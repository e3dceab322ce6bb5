"""The limiters that are compared. Each decides about the same keys under the same limit.

`check` is the method that a service would call, without a wrapper.
"""

from __future__ import annotations

from functools import partial

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
    has_memory = True
    has_threads = True

    def __init__(self, url, limit):
        limiter = Limiter("memory:" if url is None else url, {"api": f"{limit}/day"}, max_keys=2_000_000)
        self.check = limiter.check


class Limits:
    has_keys = True
    has_memory = True
    has_threads = True

    def __init__(self, url, limit, strategy):
        storage = storage_from_string("memory://" if url is None else url)
        self.check = partial(getattr(limits.strategies, strategy)(storage).hit, limits.RateLimitItemPerDay(limit))


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
    # The caller creates a bucket for each key.
    has_keys = False
    has_memory = True
    # It denies while another thread holds its lock: 1,400 of 1,600 requests that were within the limit.
    has_threads = False

    def __init__(self, url, limit):
        rates = [pyrate_limiter.Rate(limit, pyrate_limiter.Duration.DAY)]
        if url is None:
            bucket = pyrate_limiter.InMemoryBucket(rates)
        else:
            bucket = pyrate_limiter.RedisBucket.init(rates, redis.Redis.from_url(url), f"pyrate {limit}")
        self.check = partial(pyrate_limiter.Limiter(bucket).try_acquire, blocking=False)


class AsyncPolylimit:
    name = "polylimit"
    has_keys = True
    has_memory = True

    def __init__(self, url, limit):
        limiter = AsyncLimiter("memory:" if url is None else url, {"api": f"{limit}/day"}, max_keys=2_000_000)
        self.check = limiter.check

    async def start(self):
        pass


class AsyncLimits:
    has_keys = True
    has_memory = True
    implementation = "redispy"

    def __init__(self, url, limit, strategy):
        if url is None:
            storage = storage_from_string("async+memory://")
        else:
            storage = storage_from_string(f"async+{url}", implementation=self.implementation)
        self.check = partial(getattr(limits.aio.strategies, strategy)(storage).hit, limits.RateLimitItemPerDay(limit))

    async def start(self):
        pass


class AsyncLimitsFixed(AsyncLimits):
    name = "limits, fixed window"

    def __init__(self, url, limit):
        super().__init__(url, limit, "FixedWindowRateLimiter")


class AsyncLimitsSliding(AsyncLimits):
    name = "limits, sliding counter"

    def __init__(self, url, limit):
        super().__init__(url, limit, "SlidingWindowCounterRateLimiter")


class AsyncLimitsCoredis(AsyncLimits):
    name = "limits with coredis"
    has_memory = False
    implementation = "coredis"

    def __init__(self, url, limit):
        super().__init__(url, limit, "FixedWindowRateLimiter")


class AsyncPyrate:
    name = "pyrate-limiter"
    has_keys = False
    has_memory = True

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
        self.check = partial(pyrate_limiter.Limiter(bucket).try_acquire_async, blocking=False)


SYNC = [Polylimit, LimitsFixed, LimitsSliding, Pyrate]
ASYNC = [AsyncPolylimit, AsyncLimitsFixed, AsyncLimitsSliding, AsyncLimitsCoredis, AsyncPyrate]
