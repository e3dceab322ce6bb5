import asyncio
import logging
import sys
import time

import pytest
from polylimit import AsyncLimiter, DegradedEvent, Limiter

PASSWORD = "p4ssw0rd-nobody-sees"
KEY = "a key that nobody sees"
SECONDS = 20


class Sync:
    """Asks a limiter on this thread."""

    def __init__(self, *arguments, **options):
        self.limiter = Limiter(*arguments, **options)

    def check(self):
        return self.limiter.check(KEY)

    def close(self):
        self.limiter.close()


class Async:
    """Asks a limiter in an event loop."""

    def __init__(self, *arguments, **options):
        self.limiter = AsyncLimiter(*arguments, **options)
        self.loop = asyncio.new_event_loop()

    def check(self):
        async def check():
            decisions = await asyncio.gather(*(self.limiter.check(KEY) for _ in range(4)))
            return decisions[0]

        return self.loop.run_until_complete(check())

    def close(self):
        self.limiter.close()
        self.loop.close()


@pytest.fixture(params=[Sync, Async])
def face(request):
    return request.param


@pytest.fixture
def server(own_redis):
    """A server that asks for a password, and forgets keys when it is full; it may be paused."""
    own_redis.command("CONFIG", "SET", "maxmemory", "100mb")
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    own_redis.command("CONFIG", "SET", "requirepass", PASSWORD)
    own_redis.url_with_password = own_redis.url.replace("//", f"//:{PASSWORD}@")
    yield own_redis
    own_redis.resume()


def check_until(limiter, told):
    end = time.monotonic() + SECONDS
    while not told():
        assert time.monotonic() < end, "it was not told"
        limiter.check()
        time.sleep(0.01)


def lines(caplog):
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "polylimit"]


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(face, server, caplog):
    events = []
    policies = {"api": "1000000/hour"}
    limiter = face(server.url_with_password, policies, deadline=0.5, doctor_after=0, on_degraded=events.append)
    assert limiter.check().source == "store"
    server.pause()
    for _ in range(10):
        assert limiter.check().source == "fallback"
    assert len(events) == 1
    server.resume()
    check_until(limiter, lambda: len(events) > 1)
    limiter.close()
    started, ended = events
    assert isinstance(started, DegradedEvent)
    assert (started.kind, started.decisions, started.finding) == ("started", 0, None)
    assert (started.severity, ended.severity) == ("problem", "fine")
    assert started.reason in ("timeout", "unreachable")
    assert ended.kind == "ended"
    assert ended.reason == started.reason
    assert ended.decisions >= 10
    assert ended.lasted > 0
    assert lines(caplog) == [(logging.WARNING, str(started)), (logging.WARNING, str(ended))]
    assert "decides without its store" in str(started)
    for text in (str(started), repr(started), str(ended), repr(ended)):
        assert PASSWORD not in text
        assert "nobody" not in text


def test_what_the_doctor_finds_is_logged(face, server, caplog):
    events = []
    policies = {"api": "1000000/hour"}
    limiter = face(server.url_with_password, policies, deadline=10, doctor_after=0.001, on_degraded=events.append)
    check_until(limiter, lambda: events)
    limiter.close()
    (event,) = events
    assert (event.kind, event.reason, event.lasted, event.severity) == ("finding", None, 0, "problem")
    assert event.finding.subject == "memory"
    assert "allkeys-lru" in event.finding.message
    assert lines(caplog) == [(logging.WARNING, str(event))]
    assert PASSWORD not in str(event)


def test_a_hook_that_raises_disturbs_no_decision(face, own_redis, caplog, monkeypatch):
    own_redis.stop()
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))

    def on_degraded(event):
        raise RuntimeError(event.kind)

    limiter = face(own_redis.url, {"api": "1000000/hour"}, on_degraded=on_degraded)
    assert limiter.check().source == "fallback"
    limiter.close()
    assert [str(error) for error in raised] == ["started"]
    assert len(lines(caplog)) == 1


def test_a_full_store_is_logged(caplog):
    limiter = Limiter(policies={"api": "5/hour"}, max_keys=1)
    for key in ("one", "another", "a third"):
        limiter.check(key)
    assert [text for _, text in lines(caplog)] == [
        "the store is full of keys in use (store_full): new keys share one state a policy"
    ]


def test_a_hook_is_a_function():
    for wrong in ("print", 5):
        with pytest.raises(TypeError, match=r"on_degraded is of type .*: allowed is a function"):
            Limiter(on_degraded=wrong)
