"""Limits around functions and blocks of code."""

import asyncio
import pickle
import threading

import pytest
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, ManualClock
from polylimit.functions import DeniedError, admitted, limited

POLICIES = {"api": "2/hour", "slots": "1 concurrent; 3/hour"}


def test_calls_of_a_function_are_limited():
    limiter = Limiter(policies=POLICIES, clock=ManualClock(0))

    @limited(limiter, "api")
    def double(number):
        """Double a number."""
        return 2 * number

    assert [double(1), double(number=2)] == [2, 4]
    with pytest.raises(DeniedError, match=r"^over the limit: retry after \d+\.\d{3} s$") as denied:
        double(3)
    assert denied.value.retry_after == denied.value.decision.retry_after > 0
    assert pickle.loads(pickle.dumps(denied.value)).decision == denied.value.decision
    assert (double.__name__, double.__doc__) == ("double", "Double a number.")
    name = f"{__name__}.test_calls_of_a_function_are_limited.<locals>.double"
    assert limiter.peek(name, "api").remaining == 0


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_coroutine_functions_are_limited(kind):
    limiter = kind(policies=POLICIES)

    @limited(limiter, "api", key=lambda number: f"user:{number}", cost=2)
    async def double(number):
        return 2 * number

    async def main():
        assert [await double(1), await double(2)] == [2, 4]
        with pytest.raises(DeniedError):
            await double(1)

    asyncio.run(main())


def test_call_waits_for_its_turn():
    limiter = Limiter(policies={"a": "1/20ms token_bucket"})
    calls = [limited(limiter, key="k", timeout=20)(lambda: 1)() for _ in range(3)]
    assert calls == [1, 1, 1]
    with admitted(limiter, "k", timeout=20) as decision:
        assert decision.allowed


def test_slot_is_held_until_the_call_ends():
    limiter = Limiter(policies=POLICIES)
    running, most, lock = 0, 0, threading.Lock()

    @limited(limiter, "slots", key="k", timeout=20)
    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1
        raise KeyError("work")

    def call():
        with pytest.raises(KeyError):
            work()

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    with pytest.raises(DeniedError), admitted(limiter, "k", "slots"):
        pytest.fail("calls that raise are spent as well")


def test_block_of_an_event_loop():
    async def main():
        async with AsyncLimiter(policies=POLICIES) as limiter:
            async with admitted(limiter, "k", "slots"):
                with pytest.raises(DeniedError):
                    async with admitted(limiter, "k", "slots"):
                        pytest.fail("the slot is taken")
            async with admitted(limiter, "k", "slots") as decision:
                return decision.quotas[1].remaining

    assert asyncio.run(main()) == 1


def generator():
    yield


async def coroutine():
    pass


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: limited("memory:"), TypeError, "limiter is of type str: allowed is a Limiter or AsyncLimiter"),
        (lambda: limited(Limiter(), "nope"), InvalidArgumentError, "nope"),
        (lambda: limited(Limiter(policies=POLICIES)), InvalidArgumentError, "polic"),
        (lambda: limited(Limiter(), "1/s", cost=-1), InvalidArgumentError, "cost is -1"),
        (lambda: limited(Limiter(), "1/s", key=1.5), TypeError, "key is of type float"),
        (lambda: limited(Limiter(), "1/s", timeout="1s"), TypeError, "timeout is of type str"),
        (
            lambda: limited(Limiter(), "1/s")(generator),
            TypeError,
            "allowed is a function that is no",
        ),
        (lambda: limited(Limiter(), "1/s")(5), TypeError, "of type int"),
        (lambda: limited(AsyncLimiter(), "1/s")(len), TypeError, "len is no coroutine function: allowed is a Limiter"),
        (lambda: admitted(AsyncLimiter(), "k", "1/s").__enter__(), TypeError, "allowed is async with"),
    ],
)
def test_mistake_is_refused_where_it_stands(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_one_object_serves_several_blocks_at_a_time():
    limiter = Limiter("memory:", {"jobs": "2 concurrent"})
    slot = admitted(limiter, "k")
    with slot, slot, pytest.raises(DeniedError), slot:
        pass
    # Each block has given its slot back.
    assert limiter.peek("k").remaining == 2
