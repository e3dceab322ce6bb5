"""Reservations whose answer comes late, or never, and whose holder is gone."""

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import textwrap

import pytest
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter
from redis_server import until

POLICIES = {"slots": "1 concurrent", "many": "50 concurrent"}


class TimerError(Exception):
    pass


@pytest.fixture
def interrupt():
    """Makes the timer's signal raise in the main thread."""

    def handler(_number, _frame):
        raise TimerError

    before = signal.signal(signal.SIGALRM, handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("timeout", [0, 30])
def test_cancelled_reserve_gives_its_slot_back(run, own_redis, key, timeout):
    async def main():
        async with AsyncLimiter(own_redis.url, POLICIES, deadline=30) as limiter:
            await limiter.ready(10)
            own_redis.command("CLIENT", "PAUSE", "500")
            tasks = [asyncio.ensure_future(limiter.reserve(key, "many", timeout=timeout)) for _ in range(50)]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)

            async def settled():
                while (await limiter.peek(key, "many")).remaining != 50:
                    await asyncio.sleep(0.01)

            await asyncio.wait_for(settled(), 15)

    run(main())


def test_reserve_that_is_cancelled_when_its_answer_is_there_gives_its_slot_back(run, redis, key):
    async def main():
        async with AsyncLimiter(redis, POLICIES) as limiter:
            await limiter.ready(10)
            for turns in range(8):
                task = asyncio.ensure_future(limiter.reserve(key, "slots"))
                for _ in range(turns):
                    await asyncio.sleep(0.0002)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                del task
                gc.collect()

                async def settled():
                    while not await limiter.peek(key, "slots"):
                        await asyncio.sleep(0.01)

                await asyncio.wait_for(settled(), 15)

    run(main())


@pytest.mark.parametrize("timeout", [0, 30])
def test_interrupted_reserve_gives_its_slot_back(own_redis, key, interrupt, timeout):
    with Limiter(own_redis.url, POLICIES, deadline=30) as limiter:
        limiter.ready(10)
        own_redis.command("CLIENT", "PAUSE", "1000")
        with pytest.raises(TimerError):
            interrupt(0.2)
            limiter.reserve(key, "slots", timeout=timeout)
        until(lambda: limiter.peek(key, "slots").allowed, "the slot is free", seconds=15)


def test_slot_of_a_killed_holder_is_free_after_its_ttl(redis, key):
    program = """
        import sys
        from polylimit import Limiter
        reservation = Limiter(sys.argv[1], {"slots": "1 concurrent"}).reserve(sys.argv[2], ttl=2)
        print(reservation.allowed, flush=True)
        sys.stdin.read()
    """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), redis, key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with Limiter(redis, POLICIES) as limiter, holder:
        assert holder.stdout.readline() == "True\n"
        assert not limiter.reserve(key, "slots")
        holder.kill()
        reservation = limiter.reserve(key, "slots", timeout=60)
        assert reservation.allowed
        assert reservation.commit().found


def test_leased_policy_refuses_reserve(redis, key):
    with (
        Limiter(redis, {"api": "100/minute"}, lease={"api": "auto"}) as limiter,
        pytest.raises(InvalidArgumentError, match="lease"),
    ):
        limiter.reserve(key)


def test_reservation_of_an_outage_ends_in_this_process(own_redis, key):
    with Limiter(own_redis.url, {"api": "1 concurrent; 10/day fixed_window"}, deadline=0.2) as limiter:
        own_redis.stop()
        with limiter.reserve(key, cost=4) as reservation:
            assert reservation.allowed
            assert reservation.decision.source == "fallback"
            assert not limiter.reserve(key)
            usage = reservation.commit(3)
            assert usage.found
            assert usage.remaining == 7
        assert limiter.reserve(key, cost=7)
