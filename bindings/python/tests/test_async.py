"""The operations of `AsyncLimiter`."""

import asyncio
import gc
import sys
import warnings

import polylimit
import pytest
from polylimit import AsyncLimiter, InvalidArgumentError, ManualClock, Request


def test_every_operation_on_every_store(run, store, key):
    async def main():
        async with AsyncLimiter(store, {"api": "10/day fixed_window"}) as limiter:
            await limiter.ready(10)
            assert (await limiter.check(key)).remaining == 9
            assert (await limiter.peek(key, "api", cost=10)).retry_after > 0
            assert (await limiter.take(key, cost=100)).taken == 9
            assert (await limiter.charge(key, cost=5)).remaining == 0
            assert (await limiter.refund(key, cost=7)).remaining == 2
            assert not await limiter.check(key, cost=3)
            assert (await limiter.reset(key)).remaining == 10
            assert await limiter.acquire(key, timeout=5)
            assert not await limiter.acquire(key, cost=10, timeout=1)
            decisions = await limiter.check_many([key, Request(key, "5/day")])
            assert [decision.remaining for decision in decisions] == [8, 4]
            assert isinstance(await limiter.admin().doctor(), list)
        with pytest.raises(polylimit.ClosedError):
            await limiter.check(key)

    run(main())


def test_operation_without_waiting_ends_in_its_first_step():
    operation = AsyncLimiter().check("a", "1/day")
    with pytest.raises(StopIteration) as stopped:
        operation.send(None)
    assert stopped.value.value.allowed
    with pytest.raises(RuntimeError, match="cannot reuse"):
        operation.send(None)


def test_concurrent_checks_are_counted_exactly(run, redis, key):
    async def main():
        async with AsyncLimiter(redis, {"api": "100/day"}) as limiter:
            decisions = await asyncio.gather(*(limiter.check(key) for _ in range(500)))
            assert sum(map(bool, decisions)) == 100
            tasks = [asyncio.create_task(limiter.peek(key)) for _ in range(50)]
            assert not any(await asyncio.gather(*tasks))
            assert not await asyncio.wait_for(limiter.check(key), 10)

    run(main())


def test_cancelled_check_is_counted_and_leaves_nothing_behind(run, own_redis, key):
    async def main():
        async with AsyncLimiter(own_redis.url, {"api": "100/day fixed_window"}, deadline=30) as limiter:
            await limiter.ready(10)
            own_redis.command("CLIENT", "PAUSE", "500")
            tasks = [asyncio.ensure_future(limiter.check(key)) for _ in range(50)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)

            async def settled():
                while (await limiter.peek(key)).remaining != 50:
                    await asyncio.sleep(0.01)

            await asyncio.wait_for(settled(), 10)
            assert (await limiter.check(key)).remaining == 49

    run(main())


def test_cancelled_acquire_leaves_the_wait_queue(run):
    async def main():
        clock = ManualClock(0)
        limiter = AsyncLimiter(policies={"api": "1/minute fixed_window"}, clock=clock)
        assert await limiter.check("a")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.acquire("a", timeout=1000), 0.05)
        waiting = asyncio.ensure_future(limiter.acquire("a", timeout=1000))
        await asyncio.sleep(0.01)
        clock.advance(60)
        assert await waiting

    run(main())


def test_invalid_arguments_raise_at_the_call_or_at_the_await(run):
    async def main():
        limiter = AsyncLimiter()
        with pytest.raises(InvalidArgumentError):
            await limiter.check("a", "unknown")
        with pytest.raises(InvalidArgumentError):
            await limiter.check("a", "1/s", cost=-1)
        with pytest.raises(TypeError):
            await limiter.check(5.0)

    run(main())


def test_operation_that_is_never_awaited_warns():
    limiter = AsyncLimiter()
    for named, call in {
        "AsyncLimiter.check": lambda: limiter.check("a", "1/s"),
        "AsyncLimiter.ready": lambda: limiter.ready(1),
        "AsyncAdmin.unblock": lambda: limiter.admin().unblock("a", "1/s"),
        "AsyncAdmin.doctor": lambda: limiter.admin().doctor(),
    }.items():
        with pytest.warns(RuntimeWarning, match=f"^{named} was never awaited$"):
            call()
    operation = limiter.check("a", "1/s")
    with pytest.raises(TypeError, match="has to be awaited"):
        bool(operation)
    operation.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limiter.close()


def test_blocking_and_asynchronous_limiter_share_states():
    limiter = AsyncLimiter(policies={"api": "2/day"})
    assert limiter.blocking.check("a").remaining == 1
    assert asyncio.run(limiter.check("a")).remaining == 0
    assert not limiter.blocking.asynchronous.blocking.check("a")


def test_check_together_spends_all_or_nothing(run, store, key):
    async def main():
        async with AsyncLimiter(store, {"wide": "90/day fixed_window"}) as limiter:
            both = [Request(key, "wide"), Request(key, "10/day fixed_window")]
            decided = await asyncio.gather(*(limiter.check_together(both) for _ in range(40)))
            assert sum(all(decisions) for decisions in decided) == 10
            with pytest.raises(InvalidArgumentError):
                await limiter.check_together([Request(key, "wide"), Request(key, "unknown")])
            assert (await limiter.peek(key, "wide")).remaining == 80

    run(main())


def test_request_is_reserved_together_or_not_at_all(run, store, key):
    async def main():
        async with AsyncLimiter(store, {"slots": "1 concurrent", "rate": "9/day fixed_window"}) as limiter:
            both = [Request(key, "slots", cost=0), Request(key, "rate")]
            assert all(await limiter.peek_together(both))
            reserved = await limiter.reserve_together(both, id="first")
            assert (bool(reserved), reserved.id) == (True, "first")
            assert not await limiter.reserve_together(both)
            assert (await limiter.peek(key, "rate")).remaining == 8
            assert (await limiter.cancel(key, reserved.id, policy="slots")).found
            for turn in range(2):
                job = await limiter.reserve_together(both, id="job", remember=60)
                left = await limiter.commit(key, job.id, policy="slots")
                assert (left.found, left.repeated) == (True, turn == 1)

    run(main())


def test_operations_leak_no_references():
    async def main():
        limiter = AsyncLimiter(policies={"api": "1000000/day"})
        gc.collect()
        before = sys.getrefcount(limiter), sys.getrefcount(None)
        key = "a key of its own " * 2
        held = sys.getrefcount(key)
        for _ in range(2000):
            assert await limiter.check(key)
            assert await limiter.check(key.encode(), cost=1)
            assert (await limiter.charge(key)).taken == 0
            assert (await limiter.check_many([key]))[0]
            with pytest.raises(InvalidArgumentError):
                await limiter.check(key, "unknown")
        gc.collect()
        after = sys.getrefcount(limiter), sys.getrefcount(None)
        assert sys.getrefcount(key) == held
        assert after[0] == before[0]
        assert abs(after[1] - before[1]) < 1000

    asyncio.run(main())
