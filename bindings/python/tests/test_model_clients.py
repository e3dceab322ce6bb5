"""The clients of OpenAI and Anthropic on throttled transports, as their documentation passes a client of httpx."""

import asyncio
import time

import anthropic
import httpx
import httpx2
import openai
import pytest
from polylimit import AsyncLimiter, Backoff, Limiter
from polylimit import httpx as of_httpx
from polylimit import httpx2 as of_httpx2
from test_clients import FREE, server

MESSAGES = [{"role": "user", "content": "Hello"}]


def on(client):
    """The library that a client of a model is built on, and its transports: newer ones use httpx2."""
    libraries = {"httpx": (httpx, of_httpx), "httpx2": (httpx2, of_httpx2)}
    (name,) = {kind.__module__.split(".")[0] for kind in type(client._client).__mro__} & libraries.keys()
    return libraries[name]


OPENAI = on(openai.OpenAI(api_key="none"))
ANTHROPIC = on(anthropic.Anthropic(api_key="none"))


@pytest.fixture(params=["openai", "anthropic"])
def ask(request):
    """Makes functions that send a message by a client of a model."""
    made = []

    def make(url, limiter, policy=FREE, **options):
        library, module = OPENAI if request.param == "openai" else ANTHROPIC
        http = library.Client(transport=module.RateLimitTransport(limiter, policy, **options))
        if request.param == "openai":
            client = openai.OpenAI(base_url=url, api_key="none", http_client=http, max_retries=0)
            made.append(client)
            return lambda: client.chat.completions.create(model="m", messages=MESSAGES)
        client = anthropic.Anthropic(base_url=url, api_key="none", http_client=http, max_retries=0)
        made.append(client)
        return lambda: client.messages.create(model="m", messages=MESSAGES, max_tokens=5)

    make.errors = openai if request.param == "openai" else anthropic
    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize(
    ("status", "fields", "seconds"),
    [
        (429, {"retry-after-ms": "300", "retry-after": "9"}, 0.3),
        (429, {"retry-after": "0.5"}, 1),
        (403, {"retry-after": "1"}, 1),
        (
            429,
            {"Retry-After": "Sun, 06 Nov 1994 08:49:38 GMT", "Date": "Sun, 06 Nov 1994 08:49:37 GMT"},
            0,
        ),
    ],
)
def test_client_waits_as_the_server_demands(ask, status, fields, seconds):
    with server((status, fields)) as (url, seen):
        ask(url, Limiter())()
    assert len(seen) == 2
    assert seen[0][1:] == seen[1][1:]
    assert seconds <= seen[1][0] - seen[0][0] < seconds + 5


def test_clients_of_several_processes_share_a_budget(ask, redis, key):
    """Each client stands for a process."""
    with server() as (url, seen):
        clients = [ask(url, Limiter(redis), "4/s token_bucket burst=1", key=lambda _: key) for _ in range(2)]
        start = time.monotonic()
        for client in clients * 3:
            client()
        assert time.monotonic() - start >= 1.2
    assert len(seen) == 6


def test_wait_that_is_too_long_is_an_error_of_the_client(ask):
    with server((429, {"retry-after": "60"})) as (url, seen):
        call = ask(url, Limiter(), backoff=Backoff(max_wait=5))
        with pytest.raises(ask.errors.RateLimitError):
            call()
        with pytest.raises(ask.errors.APITimeoutError) as caught:
            call()
        assert 50 < caught.value.__cause__.retry_after <= 60
    assert len(seen) == 1


def test_asynchronous_client_is_paced():
    library, module = OPENAI

    async def main(url):
        transport = module.AsyncRateLimitTransport(AsyncLimiter(), "4/s token_bucket burst=1")
        http = library.AsyncClient(transport=transport)
        client = openai.AsyncOpenAI(base_url=url, api_key="none", http_client=http, max_retries=0)
        calls = [client.chat.completions.create(model="m", messages=MESSAGES) for _ in range(4)]
        await asyncio.gather(*calls)
        await client.close()

    with server() as (url, seen):
        start = time.monotonic()
        asyncio.run(main(url))
        assert time.monotonic() - start >= 0.74
    assert len(seen) == 4
