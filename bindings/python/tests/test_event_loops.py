"""Event loops and the operations that wait in them: several loops, resumed tasks, and freed loops."""

import asyncio
import contextvars
import gc
import math
import threading
import time
import weakref
from pathlib import Path

import pytest
import uvloop
from polylimit import AsyncLimiter


class ProactorLikeLoop(asyncio.SelectorEventLoop):
    """A loop that watches no descriptors, as the default one on Windows."""

    def add_reader(self, fd, callback, *args):
        raise NotImplementedError


def names_of_threads():
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def test_one_limiter_serves_event_loops_in_several_threads(redis, key):
    limiter = AsyncLimiter(redis, {"api": "300/day"})
    allowed = []

    async def main():
        decisions = await asyncio.gather(*(limiter.check(key) for _ in range(200)))
        allowed.append(sum(map(bool, decisions)))

    kinds = [asyncio.new_event_loop, uvloop.new_event_loop, ProactorLikeLoop] * 2

    def work(new_loop):
        for _ in range(2):
            loop = new_loop()
            loop.run_until_complete(main())
            loop.close()
        allowed.append(0)

    threads = [threading.Thread(target=work, args=[kind]) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(allowed), sum(allowed)) == (18, 300)


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, ProactorLikeLoop])
def test_closed_event_loop_is_freed(redis, key, kind):
    limiter = AsyncLimiter(redis, {"api": "1000/day"})

    class Loop(kind):
        pass

    def use():
        loop = Loop()
        loop.run_until_complete(limiter.check(key))
        # This operation is under way when the loop ends.
        task = loop.create_task(limiter.check(key))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
        return weakref.ref(loop)

    loops = [use() for _ in range(5)]
    gc.collect()
    assert [loop() for loop in loops] == [None] * 5


def test_loop_that_watches_no_descriptors_has_a_thread_until_it_is_freed(redis, key):
    limiter = AsyncLimiter(redis, {"api": "1000/day"})

    async def main():
        for _ in range(20):
            decisions = await asyncio.gather(*(limiter.check(key) for _ in range(20)))
            assert all(decisions)
        task = asyncio.create_task(limiter.acquire(key, cost=1000, timeout=100_000))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return names_of_threads().count("polylimit-loop")

    def use():
        loop = ProactorLikeLoop()
        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    assert use() >= 1
    until = time.monotonic() + 10
    while (gc.collect() or "polylimit-loop" in names_of_threads()) and time.monotonic() < until:
        time.sleep(0.01)
    assert "polylimit-loop" not in names_of_threads()


@pytest.mark.parametrize("kind", [asyncio.SelectorEventLoop, ProactorLikeLoop])
def test_event_loop_closed_with_waiting_operations_is_freed(own_redis, key, kind):
    own_redis.command("CLIENT", "PAUSE", "60000")
    remote = AsyncLimiter(own_redis.url, {"api": "1000/day"}, deadline=60)
    memory = AsyncLimiter(policies={"api": "1/day"})
    assert memory.blocking.check(key)

    class Loop(kind):
        pass

    def use(start):
        loop = Loop()
        task = loop.create_task(start())
        loop.run_until_complete(asyncio.sleep(0.01))
        assert not task.done()
        loop.call_exception_handler = lambda _context: None
        loop.close()
        return weakref.ref(loop)

    async def wrapped():
        await memory.acquire(key, timeout=math.inf)

    starts = [lambda: remote.check(key), lambda: memory.acquire(key, timeout=math.inf), wrapped]
    loops = [use(start) for start in starts for _ in range(3)]
    gc.collect()
    assert [loop() for loop in loops] == [None] * 9


def test_exception_that_ends_the_loop_loses_no_other_decision(redis, key):
    class RaisedBySignalError(Exception):
        pass

    class Loop(asyncio.SelectorEventLoop):
        is_interrupted = False

        def call_soon(self, *arguments, **named):
            if self.is_interrupted and type(arguments[-1]).__name__ == "OperationFuture":
                self.is_interrupted = False
                raise RaisedBySignalError
            return super().call_soon(*arguments, **named)

    def interrupt():
        loop = Loop()
        done = []

        async def check(limiter, number):
            assert await limiter.check(key)
            done.append(number)
            if len(done) == 1:
                # The loop ends and schedules the other tasks. A signal handler raises in the first of these calls.
                loop.is_interrupted = True
                raise KeyboardInterrupt

        async def main():
            async with AsyncLimiter(redis, {"api": "1000/day"}) as limiter:
                await limiter.ready(10)
                before = limiter.stats()["applied"]
                tasks = [asyncio.ensure_future(check(limiter, number)) for number in range(50)]
                await asyncio.sleep(0)
                until = time.monotonic() + 10
                while limiter.stats()["applied"] < before + 50 and time.monotonic() < until:
                    time.sleep(0.01)  # noqa: ASYNC251
                time.sleep(0.2)  # noqa: ASYNC251
                finished, _ = await asyncio.wait(tasks, timeout=2)
                assert sum(type(task.exception()) is KeyboardInterrupt for task in finished) == 1
                return len(finished)

        try:
            running = loop.create_task(main())
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(running)
            finished = loop.run_until_complete(running)
            # The task whose callback could not be scheduled is the only one that does not end.
            assert finished == (50 if loop.is_interrupted else 49)
            assert len(done) == finished
            return not loop.is_interrupted
        finally:
            loop.close()

    # On a loaded machine the first reply may reach the loop alone; then no other task has to be scheduled.
    assert any(interrupt() for _ in range(20))


def test_task_is_resumed_in_its_own_context(run, redis, key):
    number = contextvars.ContextVar("number")

    async def check(limiter, own):
        number.set(own)
        for _ in range(3):
            assert await limiter.check(key)
            assert number.get() == own
            assert asyncio.current_task().get_name() == f"task {own}"
            await asyncio.sleep(0)
            assert number.get() == own

    async def main():
        async with AsyncLimiter(redis, {"api": "1000/day"}) as limiter:
            tasks = [asyncio.create_task(check(limiter, own), name=f"task {own}") for own in range(40)]
            await asyncio.gather(*tasks)

    run(main())


def test_resumed_task_can_cancel_tasks_with_a_decision(run, redis, key):
    async def main():
        async with AsyncLimiter(redis, {"api": "1000/day"}) as limiter:
            await limiter.ready(10)
            tasks = []

            async def check():
                await limiter.check(key)
                for task in tasks:
                    if task is not asyncio.current_task():
                        task.cancel()

            tasks += [asyncio.create_task(check()) for _ in range(20)]
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert results.count(None) == 1
            assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 19
            # A cancelled check is charged if it was on its way to Redis; on a loaded machine the first answer may come
            # before the others were sent.
            assert 980 <= (await limiter.peek(key)).remaining <= 999

    run(main())


def test_nested_loop_in_a_resumed_task_gets_its_decisions(redis, key):
    """As with nest_asyncio: the outer callback of the loop has not returned."""
    loop = asyncio.new_event_loop()
    answers = []

    async def nested(limiter):
        answers.append(await limiter.check(key))

    def run_once_until(is_over):
        task = asyncio.current_task(loop)
        asyncio.tasks._leave_task(loop, task)
        end = time.monotonic() + 10
        try:
            while not is_over() and time.monotonic() < end:
                loop.call_later(0.001, lambda: None)
                loop._run_once()
        finally:
            asyncio.tasks._enter_task(loop, task)

    async def check(limiter, *, is_nesting):
        assert await limiter.check(key)
        if is_nesting:
            tasks = [loop.create_task(nested(limiter)) for _ in range(3)]
            run_once_until(lambda: all(task.done() for task in tasks))

    async def main():
        async with AsyncLimiter(redis, {"api": "1000/day"}) as limiter:
            await limiter.ready(10)
            await asyncio.gather(*(check(limiter, is_nesting=number == 5) for number in range(10)))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert len(answers) == 3


def test_waiting_operation_yields_a_future(redis, key):
    async def main():
        async with AsyncLimiter(redis, {"api": "1000/day"}) as limiter:
            operation = limiter.check(key)
            assert not asyncio.isfuture(operation)
            future = operation.send(None)
            assert asyncio.isfuture(future)
            assert future.get_loop() is asyncio.get_running_loop()
            assert not future.done()
            with pytest.raises(asyncio.InvalidStateError):
                future.result()
            # An operation that is resumed too early continues to wait.
            assert operation.send(None) is future
            called = []
            future.add_done_callback(called.append)
            while not called:
                await asyncio.sleep(0)
            assert called == [future]
            assert future.done()
            assert not future.cancelled()
            assert not future.cancel()
            with pytest.raises(StopIteration) as stopped:
                operation.send(None)
            assert stopped.value.value.allowed
            future.add_done_callback(called.append)
            await asyncio.sleep(0)
            assert called == [future, future]

            # The reply to a check may be there before the operation has to wait.
            operation = limiter.acquire(key, cost=1000, timeout=100_000)
            future = operation.send(None)
            assert future.cancel("enough")
            assert future.cancelled()
            with pytest.raises(asyncio.CancelledError):
                future.result()
            with pytest.raises(asyncio.CancelledError):
                operation.send(None)

    asyncio.run(main())


def test_operation_outside_of_an_event_loop_raises(redis):
    with pytest.raises(RuntimeError, match="waits in an event loop of asyncio or trio, and none runs here"):
        AsyncLimiter(redis).check("a", "1/day").send(None)
