import asyncio
import logging
import sys
import time

import pytest
from polylimit import AsyncLimiter, DegradedEvent, Limiter

PASSWORD = "p4ssw0rd-that-is-secret"
KEY = "a key that is secret"
SECONDS = 20


class Sync:
    """Uses a `Limiter` on this thread."""

    def __init__(self, *arguments, **options):
        self.limiter = Limiter(*arguments, **options)

    def check(self):
        return self.limiter.check(KEY)

    def close(self):
        self.limiter.close()


class Async:
    """Uses an `AsyncLimiter` in an event loop."""

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
def limiter_class(request):
    return request.param


@pytest.fixture
def server(own_redis):
    """A server with a password and with an eviction policy that the doctor reports."""
    own_redis.command("CONFIG", "SET", "maxmemory", "100mb")
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    own_redis.command("CONFIG", "SET", "requirepass", PASSWORD)
    own_redis.url_with_password = own_redis.url.replace("//", f"//:{PASSWORD}@")
    yield own_redis
    own_redis.resume()


def check_until(limiter, told):
    end = time.monotonic() + SECONDS
    while not told():
        assert time.monotonic() < end, "no event arrived"
        limiter.check()
        time.sleep(0.01)


def lines(caplog):
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "polylimit"]


def test_outage_start_and_end_are_logged(limiter_class, server, caplog):
    events = []
    policies = {"api": "1000000/hour"}
    limiter = limiter_class(server.url_with_password, policies, deadline=0.5, doctor_after=0, on_degraded=events.append)
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
        assert "secret" not in text


def test_doctor_finding_is_logged(limiter_class, server, caplog):
    events = []
    policies = {"api": "1000000/hour"}
    limiter = limiter_class(
        server.url_with_password, policies, deadline=10, doctor_after=0.001, on_degraded=events.append
    )
    check_until(limiter, lambda: events)
    limiter.close()
    (event,) = events
    assert (event.kind, event.reason, event.lasted, event.severity) == ("finding", None, 0, "problem")
    assert event.finding.subject == "memory"
    assert "allkeys-lru" in event.finding.message
    assert lines(caplog) == [(logging.WARNING, str(event))]
    assert PASSWORD not in str(event)


def test_exception_of_hook_does_not_reach_the_caller(limiter_class, own_redis, caplog, monkeypatch):
    own_redis.stop()
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))

    def on_degraded(event):
        raise RuntimeError(event.kind)

    limiter = limiter_class(own_redis.url, {"api": "1000000/hour"}, on_degraded=on_degraded)
    assert limiter.check().source == "fallback"
    limiter.close()
    assert [str(error) for error in raised] == ["started"]
    assert len(lines(caplog)) == 1


def test_full_store_is_logged(caplog):
    limiter = Limiter(policies={"api": "5/hour"}, max_keys=1)
    for key in ("one", "another", "a third"):
        limiter.check(key)
    assert [text for _, text in lines(caplog)] == [
        "the store is full of keys in use (store_full): new keys share one state a policy"
    ]


def test_hook_that_is_not_callable_is_refused():
    for wrong in ("print", 5):
        with pytest.raises(TypeError, match=r"on_degraded is of type .*: allowed is a function"):
            Limiter(on_degraded=wrong)


def test_refused_document_is_logged_and_counted(tmp_path, caplog):
    caplog.set_level(logging.INFO, "polylimit")
    document, events = tmp_path / "limits.toml", []
    text = 'polylimit = 1\n[policies.a]\nquotas = "QUOTAS"\n'
    document.write_text(text.replace("QUOTAS", "5/minute"))
    limiter = Limiter(configuration=f"file:{document}", on_degraded=events.append)
    assert limiter.check(KEY, "a")
    assert "polylimit_policies_last_reload_successful 1" in limiter.metrics_text()

    def seen(count):
        end = time.monotonic() + SECONDS
        while len(events) < count and time.monotonic() < end:
            limiter.check(KEY, "a")
            time.sleep(0.01)
        return events[count - 1]

    document.write_text(text.replace("QUOTAS", "x/minute"))
    refused = seen(1)
    assert (refused.kind, refused.severity, refused.finding.subject) == ("finding", "problem", "configuration")
    assert "line 3" in refused.finding.message
    assert "polylimit_policies_last_reload_successful 0" in limiter.metrics_text()
    document.write_text(text.replace("QUOTAS", "7/minute"))
    assert (seen(2).severity, seen(2).finding.subject) == ("fine", "configuration")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert KEY not in caplog.text


def test_options_without_effect_are_a_note(caplog):
    caplog.set_level(logging.INFO, "polylimit")
    limiter = Limiter("memory:", {"a": "1/s"}, deadline=0.1, outage={"a": "deny"}, prefix="shop")
    assert limiter.check(KEY)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert all(name in record.getMessage() for name in ("deadline", "outage", "prefix"))
