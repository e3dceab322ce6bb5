"""Throttled clients of httpx and requests, against servers on this host."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import httpx
import httpx2
import pytest
import requests
from polylimit import AsyncLimiter, Backoff, InvalidArgumentError, Limiter
from polylimit import aiohttp as of_aiohttp
from polylimit import httpx as of_httpx
from polylimit import httpx2 as of_httpx2
from polylimit import requests as of_requests

#: Admits every request at once.
FREE = "1000000/s token_bucket"


@contextmanager
def server(*script):
    """A server that answers the requests by a script, then by 200; yields its URL and the requests that it got."""
    answers, seen, lock = list(script), [], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            with lock:
                seen.append((time.monotonic(), self.command, self.path, body))
                status, fields = answers.pop(0) if answers else (200, {})
            content = json.dumps({"status": status}).encode()
            self.send_response(status)
            for name, value in {**fields, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer  # noqa: N815

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", seen
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


class Httpx:
    library, module = httpx, of_httpx
    throttled = of_httpx.Throttled

    def __init__(self, limiter=None, policy=FREE, **options):
        transport = self.module.RateLimitTransport(limiter or Limiter(), policy, **options)
        self.client = self.library.Client(transport=transport, timeout=self.library.Timeout(30, pool=None))

    def request(self, method, url, *, timeout=None, **options):
        if timeout is not None:
            options["timeout"] = self.library.Timeout(30, pool=timeout)
        return self.client.request(method, url, **options)

    def close(self):
        self.client.close()


class AsyncHttpx(Httpx):
    def __init__(self, limiter=None, policy=FREE, **options):
        transport = self.module.AsyncRateLimitTransport(limiter or AsyncLimiter(), policy, **options)
        self.loop = asyncio.new_event_loop()
        self.client = self.library.AsyncClient(transport=transport, timeout=self.library.Timeout(30, pool=None))

    def request(self, method, url, **options):
        return self.loop.run_until_complete(super().request(method, url, **options))

    def close(self):
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()


class Httpx2(Httpx):
    library, module = httpx2, of_httpx2
    throttled = of_httpx2.Throttled


class AsyncHttpx2(AsyncHttpx):
    library, module = httpx2, of_httpx2
    throttled = of_httpx2.Throttled


class Aiohttp:
    throttled = of_aiohttp.Throttled

    def __init__(self, limiter=None, policy=FREE, **options):
        limit = of_aiohttp.RateLimitMiddleware(limiter or AsyncLimiter(), policy, **options)
        self.loop = asyncio.new_event_loop()
        self.client = self.loop.run_until_complete(self._session(limit))

    async def _session(self, limit):
        return aiohttp.ClientSession(middlewares=[limit])

    def request(self, method, url, *, content=None, **options):
        async def answered():
            async with self.client.request(method, url, data=content, **options) as response:
                response.status_code = response.status
                return response

        return self.loop.run_until_complete(answered())

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


class Requests:
    throttled = of_requests.Throttled

    def __init__(self, limiter=None, policy=FREE, **options):
        self.session = requests.Session()
        self.session.mount("http://", of_requests.RateLimitAdapter(limiter or Limiter(), policy, **options))

    def request(self, method, url, *, timeout=None, content=None, **options):
        return self.session.request(method, url, data=content, timeout=timeout, **options)

    def close(self):
        self.session.close()


@pytest.fixture(params=[Httpx, AsyncHttpx, Httpx2, AsyncHttpx2, Requests, Aiohttp])
def client(request):
    """Makes clients of one library."""
    made = []

    def make(*arguments, **options):
        made.append(request.param(*arguments, **options))
        return made[-1]

    make.kind = request.param
    make.is_async = request.param in {AsyncHttpx, AsyncHttpx2, Aiohttp}
    #: Whether a request has a timeout that only its waits count for.
    make.has_timeout = request.param is not Aiohttp
    yield make
    for one in made:
        one.close()


def test_response_with_retry_after_is_retried_after_that_time(client):
    with server((429, {"Retry-After": "1"})) as (url, seen):
        assert client().request("POST", f"{url}/a", content=b"sent again").status_code == 200
    (first, *_), (second, *_) = seen
    assert [request[1:] for request in seen] == [("POST", "/a", "sent again")] * 2
    assert second - first >= 1


def test_other_requests_of_the_host_are_held_back_and_those_of_other_hosts_are_not(client):
    with server((503, {"Retry-After": "1"})) as (url, seen), server() as (other, others):
        one = client(backoff=Backoff(max_retries=0))
        assert one.request("GET", url).status_code == 503
        assert one.request("GET", other).status_code == 200
        assert one.request("GET", url).status_code == 200
    assert [request[1] for request in seen] == ["GET", "GET"]
    assert seen[1][0] - seen[0][0] >= 1
    assert others[0][0] < seen[1][0]


def test_fields_with_nothing_left_hold_back_the_next_request(client):
    with server((200, {"RateLimit": '"a";r=0;t=1'})) as (url, seen):
        one = client()
        assert [one.request("GET", url).status_code for _ in range(2)] == [200, 200]
    assert seen[1][0] - seen[0][0] >= 1


def test_post_is_not_repeated_after_503(client):
    with server((503, {"Retry-After": "0"}), (503, {"Retry-After": "0"})) as (url, seen):
        one = client()
        assert one.request("POST", url, content=b"x").status_code == 503
        assert one.request("PUT", url, content=b"x").status_code == 200
    assert [request[1] for request in seen] == ["POST", "PUT", "PUT"]


def test_body_that_cannot_be_sent_again_is_sent_once(client):
    def stream():
        yield b"once"

    async def async_stream():
        yield b"once"

    with server((429, {"Retry-After": "0"})) as (url, seen):
        content = async_stream() if client.is_async else stream()
        assert client().request("PUT", url, content=content, headers={"content-length": "4"}).status_code == 429
    assert [request[3] for request in seen] == ["once"]


def test_retries_are_bounded(client):
    with server(*[(429, {})] * 9) as (url, seen):
        backoff = Backoff(base=0.001, cap=0.001, max_retries=2)
        assert client(backoff=backoff).request("GET", url).status_code == 429
    assert len(seen) == 3


@pytest.mark.parametrize("bound", ["max_wait", "timeout"])
def test_wait_that_does_not_fit_returns_the_response_and_refuses_the_next_request(client, bound):
    with server((429, {"Retry-After": "60"})) as (url, seen):
        is_timeout = bound == "timeout" and client.has_timeout
        one, options = (client(), {"timeout": 10}) if is_timeout else (client(backoff=Backoff(max_wait=10)), {})
        assert one.request("GET", url, **options).status_code == 429
        with pytest.raises(one.throttled) as caught:
            one.request("GET", url, **options)
    assert len(seen) == 1
    assert 10 < caught.value.retry_after <= 60
    assert str(caught.value).startswith("the server asked for a wait of 60 s with status 429: ")


def test_requests_are_paced_by_the_limiter_under_their_key(client):
    limiter = AsyncLimiter() if client.is_async else Limiter()
    with server() as (url, seen):
        one = client(limiter, "2/s token_bucket burst=1", cost=1, key=lambda _: "shared")
        start = time.monotonic()
        for _ in range(3):
            assert one.request("GET", url).status_code == 200
        # The bucket counts by the wall clock.
        assert time.monotonic() - start >= 0.99
    assert len(seen) == 3


def test_request_that_the_limiter_would_admit_too_late_is_refused(client):
    with server() as (url, seen):
        one = client(None, "1/hour", backoff=Backoff(max_wait=5))
        assert one.request("GET", url).status_code == 200
        with pytest.raises(
            one.throttled, match=r"^the client's limiter asks for a wait of \d+(\.\d+)? s, and this request"
        ):
            one.request("GET", url)
        one = client(None, "1/hour", cost=2)
        with pytest.raises(one.throttled, match="never admits") as caught:
            one.request("GET", url)
        assert caught.value.retry_after is None
    assert len(seen) == 1


def test_cost_and_policy_are_those_of_the_limiter(client):
    with server() as (url, seen), pytest.raises(InvalidArgumentError):
        client(None, "unknown").request("GET", url)
    assert seen == []


def test_default_key_is_the_host_without_the_port_of_the_scheme():
    for url, key in [
        ("http://API.example.com/a", "api.example.com"),
        ("http://api.example.com:80/a", "api.example.com"),
        ("https://api.example.com:443", "api.example.com"),
        ("https://u:p@api.example.com:80/?q", "api.example.com:80"),
        ("http://[2001:DB8::1]/", "[2001:db8::1]"),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]:8080"),
    ]:
        assert of_httpx.host(httpx.Request("GET", url)) == key
        assert of_requests.host(requests.Request("GET", url).prepare()) == key


def test_cancelled_request_leaves_the_queue_and_spends_nothing():
    async def main(url):
        limiter = AsyncLimiter(policies={"api": "1/hour"})
        transport = of_httpx.AsyncRateLimitTransport(limiter, backoff=Backoff(max_wait=86400), key=lambda _: "k")
        async with httpx.AsyncClient(transport=transport, timeout=None) as client:
            assert (await client.get(url)).status_code == 200
            waiting = asyncio.create_task(client.get(url))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await limiter.reset("k")
            assert (await client.get(url)).status_code == 200

    with server() as (url, seen):
        asyncio.run(main(url))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("nope",), {}, InvalidArgumentError, "nope"),
        (("100/minit",), {}, InvalidArgumentError, "minit"),
        (("1 concurrent",), {}, InvalidArgumentError, "policy has a quota of concurrency"),
        ((), {}, InvalidArgumentError, "polic"),
        (("1/s",), {"cost": lambda _: 1}, TypeError, "cost is of type function: allowed is int"),
        (("1/s",), {"cost": -1}, InvalidArgumentError, "cost is -1"),
        (("1/s",), {"backoff": 5}, TypeError, "backoff is of type int: allowed is Backoff"),
        (("1/s",), {"key": "k"}, TypeError, "key is of type str: allowed is a function of the request"),
    ],
)
def test_mistake_is_refused_when_the_client_is_made(client, arguments, options, error, message):
    limiter = (AsyncLimiter if client.is_async else Limiter)(policies={"a": "1/s", "b": "2/s"})
    made = {
        Httpx: of_httpx.RateLimitTransport,
        AsyncHttpx: of_httpx.AsyncRateLimitTransport,
        Httpx2: of_httpx2.RateLimitTransport,
        AsyncHttpx2: of_httpx2.AsyncRateLimitTransport,
        Requests: of_requests.RateLimitAdapter,
        Aiohttp: of_aiohttp.RateLimitMiddleware,
    }[client.kind]
    with pytest.raises(error, match=message):
        made(limiter, *arguments, **options)
    with pytest.raises(
        TypeError, match=r"limiter is an? (Async)?Limiter: allowed is a (Async)?Limiter, such as its \."
    ):
        made(limiter.blocking if client.is_async else limiter.asynchronous)
    assert repr(made(limiter, "a")).endswith("'a')")
