"""Reservations of the limiter for event loops."""

import asyncio
import gc
import sys

import pytest
from polylimit import AsyncLimiter, AsyncReservation, ClosedError, InvalidArgumentError, ManualClock
from redis_server import until

POLICIES = {"model": "2 concurrent; 100/day fixed_window", "slots": "1 concurrent"}


def test_every_operation_on_every_store(run, store, key):
    async def main():
        async with AsyncLimiter(store, POLICIES) as limiter:
            reservation = await limiter.reserve(key, "model", cost=40, id="first", ttl=20, max_age=0)
            assert isinstance(reservation, AsyncReservation)
            assert reservation
            assert reservation.allowed
            assert reservation.id == "first"
            assert not reservation.is_lost
            assert reservation.decision.remaining == 60
            denied = await limiter.reserve(key, "model", cost=61)
            assert not denied
            assert not denied.allowed
            assert not (await denied.cancel()).found
            assert (await limiter.renew(key, "first", 50, policy="model")).found
            usage = await reservation.commit(25)
            assert usage.found
            assert usage.remaining == 75
            assert not (await reservation.commit(25)).found
            assert not (await limiter.commit(key, "first", spent=25, policy="model")).found
            assert not (await limiter.cancel(key, "first", policy="model")).found
            assert not (await limiter.renew(key, "first", 10, policy="model")).found
            assert (await limiter.peek(key, "model")).remaining == 75

    run(main())


def test_scope_of_the_operation_and_of_the_handle(run, store, key):
    async def main():
        async with AsyncLimiter(store, POLICIES) as limiter:
            async with limiter.reserve(key, "model", cost=40) as reservation:
                assert isinstance(reservation, AsyncReservation)
                assert (await limiter.peek(key, "model")).remaining == 60
                assert (await reservation.commit(10)).remaining == 90
            assert (await limiter.peek(key, "model")).remaining == 90
            async with await limiter.reserve(key, "model", cost=40):
                assert (await limiter.peek(key, "model")).remaining == 50
            assert (await limiter.peek(key, "model")).remaining == 90
            async with limiter.reserve(key, "model", cost=40):
                assert (await limiter.peek(key, "model")).remaining == 50
            assert (await limiter.peek(key, "model")).remaining == 90
            async with limiter.reserve(key, "model", cost=40, commit_at_end=True):
                pass
            assert (await limiter.peek(key, "model")).remaining == 50
            async with await limiter.reserve(key, "model", cost=40, commit_at_end=True):
                pass
            assert (await limiter.peek(key, "model")).remaining == 10

    run(main())


@pytest.mark.parametrize("is_awaited_first", [False, True])
def test_scope_that_is_left_by_an_error_cancels(run, store, key, is_awaited_first):
    async def main():
        async with AsyncLimiter(store, POLICIES) as limiter:
            for error in (KeyError("work"), asyncio.CancelledError(), SystemExit()):
                scope = limiter.reserve(key, "model", cost=40, commit_at_end=True)
                if is_awaited_first:
                    scope = await scope
                with pytest.raises(type(error)):
                    async with scope:
                        raise error
                assert (await limiter.peek(key, "model")).remaining == 100

    run(main())


def test_denied_reservation_enters_its_scope(run, key):
    async def main():
        limiter = AsyncLimiter(policies=POLICIES)
        async with limiter.reserve(key, "slots") as first, limiter.reserve(key, "slots") as second:
            assert first.allowed
            assert not second.allowed
        assert await limiter.peek(key, "slots")

    run(main())


def test_error_of_reserve_leaves_no_scope(run, key):
    async def main():
        limiter = AsyncLimiter(policies=POLICIES)
        with pytest.raises(InvalidArgumentError, match="unknown"):
            async with limiter.reserve(key, "unknown"):
                raise AssertionError("the scope is not entered")
        for arguments in ({"id": ""}, {"id": "x" * 65}):
            with pytest.raises(InvalidArgumentError, match="allowed are 1 to 64"):
                limiter.reserve(key, "model", **arguments)
        for ttl in (0, 48 * 3600 + 0.000001):
            with pytest.raises(InvalidArgumentError, match="ttl"):
                await limiter.reserve(key, "model", ttl=ttl)
        with pytest.raises(InvalidArgumentError, match="leaky_bucket"):
            await limiter.reserve(key, "5/s leaky_bucket")
        for call in (limiter.check, limiter.take, lambda key, policy: limiter.acquire(key, policy, timeout=1)):
            with pytest.raises(InvalidArgumentError, match="reserve"):
                await call(key, "slots")

    run(main())


def test_operation_behaves_as_a_coroutine(run, key):
    async def main():
        limiter = AsyncLimiter(policies=POLICIES)
        operation = limiter.reserve(key, "model")
        assert asyncio.iscoroutine(operation)
        task = asyncio.create_task(operation)
        gathered = await asyncio.gather(asyncio.wait_for(limiter.reserve(key, "model"), 60), task)
        assert all(gathered)
        assert not await limiter.reserve(key, "model")
        closed = limiter.reserve(key, "model")
        closed.close()
        with pytest.raises(RuntimeError, match="cannot reuse"):
            await closed
        with pytest.raises(KeyError):
            limiter.reserve(key, "model").throw(KeyError())

    run(main())


def test_operation_has_to_be_awaited(run, key):
    async def main():
        limiter = AsyncLimiter(policies=POLICIES)
        operation = limiter.reserve(key, "slots")
        with pytest.raises(TypeError, match="has to be awaited"):
            bool(operation)
        with pytest.warns(RuntimeWarning, match="never awaited"):
            del operation
            gc.collect()
        assert await limiter.peek(key, "slots")
        reservation = await limiter.reserve(key, "slots")
        with pytest.warns(RuntimeWarning, match="never awaited"):
            reservation.commit()
        assert not await limiter.peek(key, "slots")
        assert (await reservation.commit()).found

    run(main())


def test_forgotten_handle_ends_its_reservation(run, store, key):
    async def main():
        async with AsyncLimiter(store, POLICIES) as limiter:
            operation = limiter.reserve(key, "model", cost=40)
            reservation = await operation
            assert (await limiter.peek(key, "model")).remaining == 60
            del reservation
            blocking = limiter.blocking
            until(lambda: blocking.peek(key, "model").remaining == 100, "the reservation is cancelled")

    run(main())


def test_generator_that_is_left_early_ends_its_reservation(run, key):
    async def main():
        limiter = AsyncLimiter(policies=POLICIES)

        async def stream():
            async with limiter.reserve(key, "slots", commit_at_end=True):
                yield 1
                yield 2

        async for number in stream():
            assert number == 1
            assert not await limiter.peek(key, "slots")
            break
        gc.collect()
        while not await limiter.peek(key, "slots"):
            await asyncio.sleep(0)

    run(main())


def test_reserve_with_a_timeout_waits_in_line(run, store, key):
    async def main():
        async with AsyncLimiter(store, POLICIES) as limiter:
            order = []

            async def hold(number):
                async with limiter.reserve(key, "slots", timeout=60) as reservation:
                    assert reservation.allowed
                    order.append(number)
                    await asyncio.sleep(0)

            await asyncio.gather(*(hold(number) for number in range(10)))
            assert order == list(range(10))
            assert await limiter.peek(key, "slots")

    run(main())


def test_cancelled_reserve_leaves_the_line(run, key):
    async def main():
        limiter = AsyncLimiter(policies=POLICIES, clock=ManualClock(0))
        first = await limiter.reserve(key, "slots")
        tasks = [asyncio.ensure_future(limiter.reserve(key, "slots", timeout=60)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        await first.cancel()
        second = await tasks[1]
        assert second.allowed
        # The answer to the third comes when its task is cancelled already.
        await second.cancel()
        tasks[2].cancel()
        results = await asyncio.gather(tasks[0], tasks[2], return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert isinstance(results[1], asyncio.CancelledError)
        del tasks, results
        gc.collect()
        async with limiter.reserve(key, "slots", timeout=60) as last:
            assert last.allowed

    run(main())


def test_error_of_the_end_takes_no_place_of_the_error_that_leaves_the_scope(run, key, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: reported.append(event.exc_value))

    async def main():
        limiter = AsyncLimiter(policies=POLICIES)
        with pytest.raises(KeyError):
            async with limiter.reserve(key, "model"):
                limiter.close()
                raise KeyError("work")
        assert [type(error) for error in reported] == [ClosedError]
        limiter = AsyncLimiter(policies=POLICIES)
        with pytest.raises(ClosedError):
            async with limiter.reserve(key, "model"):
                limiter.close()

    run(main())


def test_handle_shows_no_key(run):
    async def main():
        reservation = await AsyncLimiter(policies=POLICIES).reserve("secret key", "model", id="mine")
        assert repr(reservation) == "AsyncReservation(id='mine', allowed=True, is_lost=False)"

    run(main())
