"""The public behaviour of `limits`, Flask-Limiter and slowapi with the storage of polylimit."""

import asyncio
import os
import subprocess
import sys
import time

import limits
import pytest
from limits import strategies
from limits.aio import strategies as aio_strategies
from limits.errors import StorageError
from limits.storage import storage_from_string
from polylimit import InvalidArgumentError, StoreUnavailableError
from polylimit.limits import AsyncPolylimitStorage, PolylimitStorage

NAMES = ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"]
NOWHERE = "polylimit+redis://127.0.0.1:1"

#: How many of 12 requests the fallback admits with a share of a quarter; for a fixed window it does not know the limit.
SHARES = dict(zip(NAMES, [12, 3, 3], strict=True))

#: The methods of a storage that need the store, with arguments.
CALLS = {
    "incr": (60, 1),
    "get": (),
    "get_expiry": (),
    "clear": (),
    "acquire_entry": (5, 60, 1),
    "get_moving_window": (5, 60),
    "acquire_sliding_window_entry": (5, 60, 1),
    "get_sliding_window": (60,),
    "clear_sliding_window": (60,),
}


@pytest.fixture
def uri(store):
    return f"polylimit+{store}"


@pytest.mark.parametrize("name", NAMES)
def test_strategy_counts_and_clears(name, uri, key):
    storage = storage_from_string(uri)
    assert isinstance(storage, PolylimitStorage)
    assert storage.check()
    limiter = getattr(strategies, name)(storage)
    item = limits.parse("10 per 2 hours")
    fresh = limiter.get_window_stats(item, key, "x")
    assert fresh.remaining == 10
    assert limiter.hit(item, key, "x", cost=7)
    assert not limiter.test(item, key, "x", cost=4)
    assert limiter.test(item, key, "x", cost=3)
    stats = limiter.get_window_stats(item, key, "x")
    assert stats.remaining == 3
    assert time.time() < stats.reset_time <= time.time() + 7201
    assert [limiter.hit(item, key, "x") for _ in range(4)] == [True, True, True, False]
    assert limiter.get_window_stats(item, key, "x").remaining == 0
    assert limiter.hit(item, key, "another")
    limiter.clear(item, key, "x")
    assert limiter.get_window_stats(item, key, "x").remaining == 10
    with pytest.raises(NotImplementedError, match="all keys"):
        storage.reset()


@pytest.mark.parametrize("name", NAMES)
def test_asynchronous_strategy_counts_and_clears(name, uri, key):
    async def main():
        storage = storage_from_string(f"async+{uri}")
        assert isinstance(storage, AsyncPolylimitStorage)
        assert await storage.check()
        limiter = getattr(aio_strategies, name)(storage)
        item = limits.parse("10/hour")
        assert (await limiter.get_window_stats(item, key)).remaining == 10
        assert await limiter.hit(item, key, cost=7)
        assert not await limiter.test(item, key, cost=4)
        stats = await limiter.get_window_stats(item, key)
        assert stats.remaining == 3
        assert time.time() < stats.reset_time <= time.time() + 3601
        assert [await limiter.hit(item, key) for _ in range(4)] == [True, True, True, False]
        await limiter.clear(item, key)
        assert (await limiter.get_window_stats(item, key)).remaining == 10
        with pytest.raises(NotImplementedError, match="all keys"):
            await storage.reset()

    asyncio.run(main())


def test_errors_are_wrapped_on_request():
    storage = storage_from_string("polylimit+memory://", wrap_exceptions=True)
    with pytest.raises(StorageError):
        storage.acquire_entry("k" * 2**21, 1, 1)
    with pytest.raises(InvalidArgumentError):
        storage_from_string("polylimit+memory://").acquire_entry("k" * 2**21, 1, 1)


def test_check_of_unreachable_store_is_false():
    assert not storage_from_string(NOWHERE).check()


@pytest.mark.parametrize(("name", "share"), SHARES.items())
def test_fallback_admits_its_share_of_the_limit(name, share, key):
    limiter = getattr(strategies, name)(storage_from_string(f"{NOWHERE}?fallback_share=0.25"))
    item = limits.parse("12/hour")
    assert limiter.get_window_stats(item, key).remaining == share
    assert limiter.test(item, key, cost=share)
    assert not limiter.test(item, key, cost=share + 1)
    assert limiter.hit(item, key, cost=share - 1)
    stats = limiter.get_window_stats(item, key)
    assert stats.remaining == 1
    assert time.time() < stats.reset_time <= time.time() + 3601
    assert [limiter.hit(item, key) for _ in range(3)] == [True, False, False]
    assert limiter.get_window_stats(item, key).remaining == 0
    limiter.clear(item, key)
    assert limiter.get_window_stats(item, key).remaining == share


@pytest.mark.parametrize(("name", "share"), SHARES.items())
def test_asynchronous_fallback_admits_its_share_of_the_limit(name, share, key):
    async def main():
        limiter = getattr(aio_strategies, name)(storage_from_string(f"async+{NOWHERE}?fallback_share=0.25"))
        item = limits.parse("12/hour")
        assert (await limiter.get_window_stats(item, key)).remaining == share
        assert await limiter.test(item, key, cost=share)
        assert not await limiter.test(item, key, cost=share + 1)
        assert [await limiter.hit(item, key) for _ in range(share + 1)] == [True] * share + [False]
        assert (await limiter.get_window_stats(item, key)).remaining == 0

    asyncio.run(main())


def test_fixed_window_continues_during_an_outage(own_redis, key):
    storage = storage_from_string(f"polylimit+{own_redis.url}?fallback_share=0.25&deadline=5s")
    assert storage.check()
    limiter = strategies.FixedWindowRateLimiter(storage)
    item = limits.parse("5/hour")
    assert [limiter.hit(item, key) for _ in range(2)] == [True, True]
    own_redis.stop()
    assert limiter.get_window_stats(item, key).remaining == 3
    assert [limiter.hit(item, key) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("name", CALLS)
def test_outage_policy_deny_raises_store_unavailable(name):
    uri = f"{NOWHERE}?outage=deny"
    arguments = ("LIMITER/key/5/1/minute", *CALLS[name])
    with pytest.raises(StoreUnavailableError, match=r"^the store is unavailable: unreachable$"):
        getattr(storage_from_string(uri), name)(*arguments)
    with pytest.raises(StorageError):
        getattr(storage_from_string(uri, wrap_exceptions=True), name)(*arguments)
    with pytest.raises(StoreUnavailableError, match=r"^the store is unavailable: unreachable$"):
        asyncio.run(getattr(storage_from_string(f"async+{uri}"), name)(*arguments))
    with pytest.raises(StorageError):
        asyncio.run(getattr(storage_from_string(f"async+{uri}", wrap_exceptions=True), name)(*arguments))


def test_flask_limiter_uses_the_storage(redis):
    import flask
    from flask_limiter import Limiter

    app = flask.Flask(__name__)
    limiter = Limiter(
        lambda: flask.request.headers["x-client"],
        app=app,
        storage_uri=f"polylimit+{redis}",
        strategy="moving-window",
        default_limits=["5/hour"],
        headers_enabled=True,
    )

    @app.get("/")
    def root():
        return "root"

    @app.get("/two")
    @limiter.limit("2/minute")
    def two():
        return "two"

    web = app.test_client()
    headers = {"x-client": str(time.time_ns())}
    responses = [web.get("/", headers=headers) for _ in range(7)]
    assert [response.status_code for response in responses] == [200] * 5 + [429] * 2
    assert [response.headers["X-RateLimit-Remaining"] for response in responses[:5]] == ["4", "3", "2", "1", "0"]
    assert [web.get("/two", headers=headers).status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_slowapi_uses_the_storage(redis):
    from fastapi import FastAPI, Request
    from fastapi.testclient import TestClient
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded

    limiter = Limiter(key_func=lambda request: request.headers["x-client"], storage_uri=f"polylimit+{redis}")
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    @app.get("/")
    @limiter.limit("3/minute")
    async def root(request: Request):
        return "root"

    web = TestClient(app, headers={"x-client": str(time.time_ns())})
    assert [web.get("/").status_code for _ in range(5)] == [200, 200, 200, 429, 429]


@pytest.mark.parametrize(
    ("options", "statuses"),
    [({"in_memory_fallback": ["2/hour"]}, [200, 200, 429]), ({"swallow_errors": True}, [200, 200, 200])],
)
def test_flask_limiter_fallback_works_with_outage_policy_deny(options, statuses):
    import flask
    from flask_limiter import Limiter

    app = flask.Flask(__name__)
    Limiter(lambda: "one", app=app, storage_uri=f"{NOWHERE}?outage=deny", default_limits=["1/hour"], **options)

    @app.get("/")
    def root():
        return "root"

    web = app.test_client()
    assert [web.get("/").status_code for _ in range(3)] == statuses


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        # A URL of sentinels needs the name of a service.
        ("redis+sentinel://127.0.0.1:1/service", None),
        ("rediss+sentinel://127.0.0.1:1/service", None),
        ("redis-sentinel://127.0.0.1:1/service", None),
        ("redis+sentinel://127.0.0.1:1", "service"),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", None),
        ("rediss+cluster://127.0.0.1:1", None),
        ("redis+cluster://127.0.0.1:1?db=1", "cluster"),
        ("redis+unix:///nowhere", None),
    ],
)
def test_urls_in_the_form_of_limits_are_accepted(uri, message):
    for prefix in ("polylimit+", "async+polylimit+"):
        if message is None:
            assert storage_from_string(f"{prefix}{uri}").limiter.policies() == []
        else:
            with pytest.raises(InvalidArgumentError, match=message):
                storage_from_string(f"{prefix}{uri}")


def test_storage_in_a_file_is_shared(tmp_path):
    uri = f"polylimit+file://{tmp_path}/counts?size=1MiB"
    item = limits.parse("2/hour")
    one, two = (strategies.FixedWindowRateLimiter(storage_from_string(uri)) for _ in range(2))
    assert [one.hit(item, "a"), two.hit(item, "a"), one.hit(item, "a")] == [True, True, False]
    assert (tmp_path / "counts").exists()


ODD = ["odd-key", "", "a/b/c/d", "LIMITER/a/1/1/month of sundays", "LIMITER/a/x/1/minute", None]


@pytest.mark.parametrize("name", ["get", "get_expiry", "clear", "get_sliding_window", "clear_sliding_window"])
@pytest.mark.parametrize("odd", ODD)
def test_key_in_another_format_is_refused(name, odd):
    arguments = () if name in ("get", "get_expiry", "clear") else (60,)
    message = r"^the key was not made by limits: allowed are those that end in amount, multiples and unit"
    with pytest.raises(InvalidArgumentError, match=message):
        getattr(storage_from_string("polylimit+memory://"), name)(odd, *arguments)
    with pytest.raises(InvalidArgumentError, match=message):
        asyncio.run(getattr(storage_from_string("async+polylimit+memory://"), name)(odd, *arguments))


def test_flask_limiter_commands_run(redis, tmp_path):
    (tmp_path / "app.py").write_text(
        f"""
import flask, polylimit.limits
from flask_limiter import Limiter
app = flask.Flask(__name__)
limiter = Limiter(lambda: "one", app=app, storage_uri="polylimit+{redis}", default_limits=["5/hour"])
@app.get("/")
def root():
    return "root"
"""
    )
    command = [sys.executable, "-m", "flask", "--app", "app", "limiter"]
    for arguments, shown in (("config", "PolylimitStorage"), ("limits", "5 per 1 hour")):
        env = {**os.environ, "COLUMNS": "200"}
        done = subprocess.run([*command, arguments], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout
        assert "Traceback" not in done.stdout
