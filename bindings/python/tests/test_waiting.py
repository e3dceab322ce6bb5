"""Requests that a limit holds in place of a denial. The rules that all frameworks share are in test_guard_cases.py."""

import asyncio
import gc
import uuid
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from datetime import timedelta

import flask
import pytest
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, ManualClock
from polylimit.asgi import RateLimitMiddleware
from polylimit.flask import RateLimit

TOKEN = "1/minute token_bucket"
LEAKY = "1/minute leaky_bucket burst=10"


def options(limiter_class, quotas):
    clock = ManualClock(now=1_789_948_800)
    limiter = limiter_class(policies={"api": quotas}, clock=clock)
    return clock, {"limiter": limiter, "key": lambda _request: "k", "wait": timedelta(minutes=1), "max_waiting": 1}


class Asgi:
    """An application of ASGI behind a limit."""

    def __init__(self, quotas, limiter=None):
        self.clock, of_limit = options(AsyncLimiter, quotas)
        if limiter is not None:
            of_limit |= {"limiter": limiter, "max_waiting": 9}
        self.limiter = of_limit["limiter"].blocking

        async def app(_scope, _receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        self._app = RateLimitMiddleware(app, **of_limit)

    async def status_of_each(self, count):
        return await asyncio.gather(*(self.status() for _ in range(count)))

    async def status(self):
        statuses = []

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def receive():
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("127.0.0.1", 1)}
        await self._app(scope, receive, send)
        return statuses[0]


@pytest.mark.parametrize("quotas", [TOKEN, LEAKY])
def test_threads_hold_requests_of_flask_and_a_further_one_is_denied(quotas):
    clock, of_limit = options(Limiter, quotas)
    app = flask.Flask(__name__)
    app.get("/")(lambda: "view")
    RateLimit(app, **of_limit)

    def status():
        return app.test_client().get("/").status_code

    assert status() == 200
    with ThreadPoolExecutor(2) as threads:
        done, held = wait([threads.submit(status) for _ in range(2)], 60, FIRST_COMPLETED)
        assert [one.result() for one in done] == [429]
        # The other one may begin to wait only now.
        while not wait(held, 0.02).done:
            clock.advance(60)
        assert [one.result() for one in held] == [200]


@pytest.mark.parametrize("quotas", [TOKEN, LEAKY])
def test_event_loop_holds_a_request_while_it_serves_others(quotas):
    service = Asgi(quotas)

    async def run():
        assert await service.status() == 200
        requests = [asyncio.ensure_future(service.status()) for _ in range(2)]
        done, held = await asyncio.wait(requests, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result() for one in done] == [429]
        while not (await asyncio.wait(held, timeout=0.02))[0]:
            service.clock.advance(60)
        assert [one.result() for one in held] == [200]

    asyncio.run(run())


@pytest.mark.parametrize("quotas", [TOKEN, LEAKY])
def test_cancelled_request_frees_its_place_and_has_spent_nothing(quotas):
    service = Asgi(quotas)

    async def run():
        assert await service.status() == 200
        before = service.limiter.peek("k").remaining
        # Each needs the only place.
        for _ in range(3):
            held = asyncio.ensure_future(service.status())
            await asyncio.sleep(0.02)
            assert not held.done()
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
            del held
            # The loop releases the call, and what it has of the request, in one of its next turns.
            while service.limiter.peek("k").remaining != before:
                gc.collect()
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("quotas", ["10/second token_bucket burst=1", "10/second leaky_bucket burst=10"])
def test_every_store_holds_requests(store, quotas):
    policy = {f"waits-{uuid.uuid4().hex}": quotas}
    service = Asgi(quotas, AsyncLimiter(store, policy))
    assert asyncio.run(service.status_of_each(4)) == [200] * 4
    app = flask.Flask(__name__)
    app.get("/")(lambda: "view")
    RateLimit(app, limiter=Limiter(store, policy), key=lambda _request: "k", wait=30)
    with ThreadPoolExecutor(4) as threads:
        statuses = threads.map(lambda _at: app.test_client().get("/").status_code, range(4))
        assert list(statuses) == [200] * 4


def test_closed_limiter_ends_the_wait():
    service = Asgi(TOKEN)

    async def run():
        assert await service.status() == 200
        held = asyncio.ensure_future(service.status())
        await asyncio.sleep(0.02)
        service.limiter.close()
        with pytest.raises(Exception, match="closed"):
            await asyncio.wait_for(held, 60)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"wait": 61}, "wait is 61: allowed is 0 to 60 s"),
        ({"wait": -1}, "wait is -1: allowed are seconds from 0 up"),
        ({"max_waiting": 0}, "max_waiting is 0: allowed is 1 to 1000000"),
        ({"max_waiting": -1}, "max_waiting is -1"),
        ({"headers": "jitter=0s"}, "jitter .* allowed are 1s to 3600s, and 1% to 100% of the wait"),
    ],
)
def test_wrong_option_is_refused(wrong, message):
    with pytest.raises(InvalidArgumentError, match=message):
        RateLimit(limiter=Limiter(policies={"api": TOKEN}), **wrong)
