"""An AsyncLimiter for asyncio and for frameworks: its methods are coroutine functions, its operations coroutines."""

import ast
import asyncio
import inspect
import logging
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import polylimit
import pytest
from polylimit import AsyncAdmin, AsyncLimiter, AsyncReservation

STUBS = ast.parse((Path(polylimit.__file__).parent / "_core.pyi").read_text())
CLASSES = {"AsyncLimiter": AsyncLimiter, "AsyncAdmin": AsyncAdmin, "AsyncReservation": AsyncReservation}
METHODS = [
    (node.name, method.name)
    for node in STUBS.body
    if isinstance(node, ast.ClassDef) and node.name in CLASSES
    for method in node.body
    if isinstance(method, ast.AsyncFunctionDef)
]


@pytest.fixture
def limiter():
    return AsyncLimiter(policies={"api": "1000/hour"})


def test_all_that_is_awaited_is_known():
    returned = {
        (node.name, method.name)
        for node in STUBS.body
        if isinstance(node, ast.ClassDef) and node.name in CLASSES
        for method in node.body
        if isinstance(method, ast.FunctionDef) and "Coroutine" in ast.dump(method.returns)
    }
    assert {name for _, name in returned} <= {"__aenter__", "__aexit__"}
    assert len(set(METHODS)) == 31


@pytest.mark.parametrize(("owner", "name"), sorted(set(METHODS)))
def test_method_is_a_coroutine_function(owner, name):
    method = getattr(CLASSES[owner], name)
    assert inspect.iscoroutinefunction(method)
    assert next(iter(inspect.signature(method).parameters)) == "self"
    assert (method.__name__, method.__qualname__) == (name, f"{owner}.{name}")
    assert method.__doc__
    if owner != "AsyncReservation":
        bound = getattr(AsyncLimiter() if owner == "AsyncLimiter" else AsyncLimiter().admin(), name)
        assert inspect.iscoroutinefunction(bound)
        assert "self" not in inspect.signature(bound).parameters
        assert bound.__self__ is not None


def test_method_is_called_in_every_form(limiter):
    async def main():
        check = limiter.check
        for answer in (
            await limiter.check("a"),
            await limiter.check("a", "api", cost=2),
            await limiter.check(b"a", policy="api"),
            await check("a"),
            await AsyncLimiter.check(limiter, "a"),
            await AsyncLimiter.check(limiter, key="a", cost=1),
            await limiter.acquire("a", timeout=1),
            await AsyncLimiter.acquire(limiter, "a", timeout=1),
        ):
            assert answer
        assert (await limiter.peek("a")).remaining == 991
        for wrong in (
            limiter.check,
            lambda: AsyncLimiter.check(3, "a"),
            AsyncLimiter.check,
            lambda: limiter.check("a", nothing=1),
            lambda: limiter.acquire("a"),
        ):
            with pytest.raises(TypeError):
                wrong()

    asyncio.run(main())


def test_mock_of_a_limiter_is_awaited(limiter):
    async def main():
        for made in (mock.create_autospec(AsyncLimiter)(), mock.create_autospec(limiter)):
            made.check.return_value = False
            assert await made.check("a") is False
            made.check.assert_awaited_once_with("a")
            async with made.reserve("a") as reservation:
                assert reservation is not None

    asyncio.run(main())


def test_task_shows_the_method(limiter):
    async def main():
        operations = [
            limiter.check("a"),
            limiter.acquire("a", timeout=1),
            limiter.reserve("a"),
            limiter.check_many(["a"]),
            limiter.admin().doctor(),
        ]
        of_limiter = ["check", "acquire", "reserve", "check_many"]
        names = [*(f"AsyncLimiter.{name}" for name in of_limiter), "AsyncAdmin.doctor"]
        assert [operation.__name__ for operation in operations] == [name.partition(".")[2] for name in names]
        assert [repr(operation).split(" at ")[0] for operation in operations] == [
            f"<operation of {name}" for name in names
        ]
        tasks = [asyncio.create_task(operation) for operation in operations]
        for name, task in zip(names, tasks, strict=True):
            assert f"coro=<{name}()" in repr(task)
        await asyncio.gather(*tasks)
        for task in tasks:
            assert "finished" in repr(task)
        failing = asyncio.create_task(limiter.check("a", "unknown"))
        with pytest.raises(polylimit.InvalidArgumentError):
            await failing
        assert "exception=" in repr(failing)

    asyncio.run(main())


def test_truth_of_an_operation_is_refused(limiter):
    for operation in (limiter.check("a"), limiter.reserve("a")):
        with pytest.raises(TypeError, match="has to be awaited"):
            bool(operation)
        with pytest.raises(TypeError, match="has to be awaited"):
            if operation:
                pass
        operation.close()


def test_slow_callback_in_debug_mode_is_reported_and_ends_nothing(limiter, caplog):
    async def main():
        asyncio.get_running_loop().slow_callback_duration = 0
        tasks = [asyncio.create_task(limiter.check("a")), asyncio.create_task(limiter.reserve("b"))]
        time.sleep(0.001)  # noqa: ASYNC251 - it is what is tested
        return await asyncio.gather(*tasks)

    with caplog.at_level(logging.WARNING, "asyncio"):
        assert all(asyncio.run(main(), debug=True))
    assert "AsyncLimiter.check()" in caplog.text


def test_error_that_nobody_retrieves_is_reported(limiter):
    reported = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(repr(context)))
        task = asyncio.create_task(limiter.check("a", "unknown"))
        await asyncio.wait([task])
        del task
        await asyncio.sleep(0)

    asyncio.run(main())
    assert "InvalidArgumentError" in reported[0]


def test_other_event_loops_are_refused_with_a_sentence(limiter):
    waits = limiter.acquire("a", timeout=3600)
    with pytest.raises(RuntimeError, match="event loop of asyncio or trio, and none runs here"):
        waits.send(None)


def test_interpreter_ends_with_operations_that_were_never_awaited():
    code = (
        "from polylimit import AsyncLimiter\nlimiter = AsyncLimiter()\nkept = limiter.check('a', '1/s'), limiter.check"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
