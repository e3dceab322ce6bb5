"""A lock of the local store that another process holds: event loops and other threads go on while a call waits."""

import asyncio
import os
import signal
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop
from polylimit import AsyncLimiter, Limiter, Request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the local store needs Linux")

#: Where a file of 1 MiB has the first of its 1,024 owners, and the lock of its only shard.
OWNERS_AT, OWNER_SIZE, OWNERS = 512 * 8, 32, 1024
LOCK_AT = OWNERS_AT + OWNERS * OWNER_SIZE
POLICIES = {"api": "100/day", "slots": "3 concurrent"}


def path_of(url: str) -> Path:
    return Path(f"/dev/shm/polylimit-{os.getuid()}-{url.removeprefix('local:').partition('?')[0]}")


@contextmanager
def lock_held(url: str, process: int):
    """Holds the lock in the name of a process, as if it were making a decision."""
    with path_of(url).open("r+b", buffering=0) as file:
        for number in range(OWNERS):
            token, owner = struct.unpack("QQ", os.pread(file.fileno(), 16, OWNERS_AT + number * OWNER_SIZE))
            if owner == process:
                os.pwrite(file.fileno(), struct.pack("Q", token), LOCK_AT)
                break
        else:
            raise LookupError(process)

        def release():
            os.pwrite(file.fileno(), bytes(8), LOCK_AT)

        try:
            yield release
        finally:
            release()


@contextmanager
def suspended_holder(url: str):
    """Another process, which is suspended while it holds the lock."""
    program = """if True:
        import sys
        from polylimit import Limiter
        limiter = Limiter(sys.argv[1], {"api": "9/day"})
        limiter.peek("a")
        print("opened", flush=True)
        input()
    """
    other = subprocess.Popen([sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"opened\n"
        other.send_signal(signal.SIGSTOP)
        with lock_held(url, other.pid):
            yield
    finally:
        other.kill()
        other.communicate()


def in_time(attempt, times=20):
    """Makes another attempt on a machine that stops for so long that the holder is judged meanwhile.

    That takes a second for a process that runs, and 4 ms for one that is suspended.
    """
    assert any(attempt() for _ in range(times))


CALLS = {
    "check": lambda limiter: limiter.check("key", "api"),
    "peek": lambda limiter: limiter.peek("key", "api"),
    "take": lambda limiter: limiter.take("key", "api"),
    "block": lambda limiter: limiter.admin().block("key", "api", time=1),
    "check_many": lambda limiter: limiter.check_many([Request("key", policy="api")]),
    "check_together": lambda limiter: limiter.check_together([Request("key", policy="api")] * 2),
    "peek_together": lambda limiter: limiter.peek_together([Request("key", policy="api")] * 2),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_other_tasks_run_before_a_suspended_process_is_judged(local, name, new_loop):
    limiter = AsyncLimiter(local, POLICIES)
    loop = new_loop()

    async def call(order):
        answer = await CALLS[name](limiter)
        order.append((answer[0] if isinstance(answer, list) else answer).degraded)

    async def other(order):
        order.append("other")

    async def main(order):
        await limiter.peek("key", "api")
        with suspended_holder(local):
            await asyncio.gather(call(order), other(order))

    def attempt():
        order = []
        loop.run_until_complete(main(order))
        return order == ["other", "busy"]

    in_time(attempt)
    loop.close()


def test_other_tasks_of_trio_run_before_a_suspended_process_is_judged(local):
    trio = pytest.importorskip("trio")
    limiter = AsyncLimiter(local, POLICIES)

    async def call(order):
        order.append((await limiter.check("key", "api")).degraded)

    async def other(order):
        await trio.lowlevel.checkpoint()
        order.append("other")

    async def main(order):
        await limiter.peek("key", "api")
        with suspended_holder(local):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, order)
                nursery.start_soon(other, order)

    def attempt():
        order = []
        trio.run(main, order)
        return order == ["other", "busy"]

    in_time(attempt)


def test_thread_that_waits_does_not_hold_the_gil(local):
    limiter = Limiter(local, POLICIES)
    limiter.peek("key", "api")

    def attempt():
        sources = []
        with lock_held(local, os.getpid()) as release:
            waiting = threading.Thread(target=lambda: sources.append(limiter.check("key", "api").source))
            waiting.start()
            # If that thread held the GIL, this one could not release the lock.
            release()
            waiting.join()
        return sources == ["store"]

    in_time(attempt)


def test_cancelled_tasks_charge_nothing(local):
    limiter = AsyncLimiter(local, POLICIES)

    async def main():
        await limiter.peek("key", "api")
        for name, call in CALLS.items():
            with lock_held(local, os.getpid()):
                task = asyncio.ensure_future(call(limiter))
                await asyncio.sleep(0)
                assert not task.done(), name
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await limiter.peek("key", "api")).remaining == 100, name

    asyncio.run(main())


def test_reservation_that_is_dropped_or_whose_end_is_cancelled_ends(local):
    limiter = AsyncLimiter(local, POLICIES)

    async def becomes_free():
        while (await limiter.peek("key", "slots")).remaining < 3:
            await asyncio.sleep(0.001)

    async def main():
        reservation = await limiter.reserve("key", "slots")
        with lock_held(local, os.getpid()):
            del reservation
        await asyncio.wait_for(becomes_free(), 60)
        reservation = await limiter.reserve("key", "slots")
        with lock_held(local, os.getpid()):
            task = asyncio.ensure_future(reservation.commit())
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait_for(becomes_free(), 60)

    asyncio.run(main())
