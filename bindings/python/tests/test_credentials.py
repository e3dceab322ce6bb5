"""Credentials that a function of the program gives."""

import gc
import os
import threading
import weakref

import pytest
from polylimit import Limiter, StoreUnavailableError
from redis_server import until

POLICIES = {"api": "1000/hour"}


@pytest.fixture
def server(own_redis):
    """A server whose user may have several passwords."""
    own_redis.command("ACL", "SETUSER", "limits", "on", ">old", "~*", "&*", "+@all")
    return own_redis


def limiter(server, give, **options):
    return Limiter(server.url, POLICIES, credentials=give, deadline=5, doctor_after=0, outage="deny", **options)


def sources(used):
    return {used.check("k").source for _ in range(3)}


def test_a_changed_password_is_asked_for_again(server):
    password = "old"
    with limiter(server, lambda: ("limits", password)) as used:
        assert sources(used) == {"store"}
        server.command("ACL", "SETUSER", "limits", ">new", "<old")
        password = "new"
        server.command("CLIENT", "KILL", "USER", "limits")
        until(lambda: used.check("k").source == "store", "the new password is used")


def test_a_password_alone_is_that_of_the_default_user(server):
    server.command("CONFIG", "SET", "requirepass", "word")
    with limiter(server, lambda: "word") as used:
        assert sources(used) == {"store"}


def test_an_exception_is_the_cause(server):
    def fail():
        raise RuntimeError("the token service is away")

    with limiter(server, fail) as used:
        assert used.check("k").degraded == "auth"
        with pytest.raises(StoreUnavailableError, match="the token service is away"):
            used.ready(30)


@pytest.mark.parametrize("given", [None, 7, ("limits",), ("limits", 7), ["limits", "old"]])
def test_another_result_is_refused(server, given):
    with limiter(server, lambda: given) as used, pytest.raises(StoreUnavailableError, match="allowed is a str"):
        used.ready(30)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="credentials is of type str: allowed is a function"):
        Limiter("redis://localhost", credentials="word")


def test_a_function_that_blocks_delays_no_decision(server):
    go_on = threading.Event()

    def give():
        go_on.wait(60)
        return "limits", "old"

    with Limiter(
        server.url, POLICIES, credentials=give, deadline=0.05, first_connect_max=0, doctor_after=0, outage="deny"
    ) as used:
        assert {used.check("k").source for _ in range(5)} == {"deny"}
        go_on.set()
        until(lambda: used.check("k").source == "store", "the function has returned")


def test_a_forked_child_asks_for_its_own(server):
    with limiter(server, lambda: ("limits", "old")) as used:
        assert sources(used) == {"store"}
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if sources(used) == {"store"} else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def test_the_function_is_released_with_the_limiter(server):
    class Give:
        def __call__(self):
            return "limits", "old"

    give = Give()
    released = weakref.ref(give)
    used = limiter(server, give)
    del give
    assert sources(used) == {"store"}
    used.close()
    del used

    def is_released():
        gc.collect()
        return released() is None

    until(is_released, "the function is released")
