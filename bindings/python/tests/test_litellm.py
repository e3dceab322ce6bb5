"""The plug-in of LiteLLM in its real proxy, in front of a model of OpenAI's interface. `versions.py` runs this."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter
from polylimit.litellm import RateLimits
from redis_server import free_port
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

POLICIES = {
    "requests": "1000/hour; 3 concurrent",
    "tokens": "100000/day",
    "answers": "90000/day",
    "money": "1000000/day",
}
#: What the configuration of the proxy names: the caller is who its API key says, and has limits.
LIMITS = f"""
import os
from litellm.proxy._types import UserAPIKeyAuth
from polylimit import AsyncLimiter
from polylimit.litellm import RateLimits

async def caller(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, team_id=api_key)

limiter = AsyncLimiter(os.environ["STORE"], {POLICIES})
counted = {{"requests": "requests", "tokens": "tokens", "answers": "output_tokens", "money": "micro_dollars"}}
limits = RateLimits(limiter, counted, max_tokens=500)
"""
PROMPT_TOKENS = 11
MASTER_KEY = "sk-" + "0123456789abcdef" * 4
#: A price of 2 and of 8 micro-dollars for a token.
CONFIGURATION = """
model_list:
  - model_name: model
    litellm_params: {model: openai/fake, api_base: "%s", api_key: none, max_retries: 0}
    model_info: {input_cost_per_token: 0.000002, output_cost_per_token: 0.000008}
litellm_settings: {callbacks: proxy_limits.limits, num_retries: 0}
general_settings: {custom_auth: proxy_limits.caller}
"""


def chunk(content, **fields):
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    made = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice], **fields}
    return f"data: {json.dumps(made)}\n\n"


class Model:
    """A model of OpenAI's interface. What it is asked is how many tokens it answers, then how it behaves."""

    def __init__(self):
        self.asked = 0
        self.released = threading.Event()
        self.server = uvicorn.Server(
            uvicorn.Config(
                Starlette(routes=[Route("/chat/completions", self.answer, methods=["POST"])]), port=0, log_level="error"
            )
        )
        socket_ = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{socket_.getsockname()[1]}"
        self.thread = threading.Thread(target=lambda: self.server.run([socket_]))
        self.thread.start()

    def close(self):
        self.released.set()
        self.server.should_exit = True
        self.thread.join()

    async def answer(self, request):
        self.asked += 1
        body = await request.json()
        tokens, *how = body["messages"][0]["content"].split()
        if "fails" in how:
            return JSONResponse({"error": {"message": "out of order"}}, 500)
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": int(tokens)}
        usage["total_tokens"] = sum(usage.values())
        if body.get("stream"):
            # As OpenAI does.
            reports = (body.get("stream_options") or {}).get("include_usage")
            stream = self.stream(int(tokens), how, usage if reports else None)
            return StreamingResponse(stream, media_type="text/event-stream")
        message = {"role": "assistant", "content": "word " * int(tokens)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse(
            {"id": "x", "object": "chat.completion", "created": 1, "model": "fake", "choices": [choice], "usage": usage}
        )

    async def stream(self, tokens, how, usage):
        # Not every token is a chunk: LiteLLM takes a millisecond for one.
        for number in range(min(tokens, 20)):
            # LiteLLM ends a stream that repeats itself.
            yield chunk(f"word{number} ")
            if number == 0 and "waits" in how:
                while not self.released.is_set():
                    await asyncio.sleep(0.01)
        yield chunk("", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if usage:
            yield chunk("", choices=[], usage=usage)
        yield "data: [DONE]\n\n"


@pytest.fixture(scope="module")
def model():
    model = Model()
    yield model
    model.close()


@contextlib.contextmanager
def proxy(folder, store, log):
    """A proxy of LiteLLM that answers; its URL."""
    port = free_port()
    program = "from litellm import run_server; run_server()"
    environment = {
        **os.environ,
        "STORE": store,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MASTER_KEY": MASTER_KEY,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen(
        # The proxy ends with the tests, even if they are killed.
        [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
            sys.executable,
            "-c",
            program,
            "--config",
            "config.yaml",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ],
        cwd=folder,
        env=environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(url) or process.poll() is not None, "the proxy answers", 180)
        assert process.poll() is None, (folder / "log").read_text()
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(url):
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health/liveliness", timeout=5).status_code == 200
    return False


def until(is_so, what, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def proxies(model, session_redis, tmp_path_factory):
    """Two processes of the proxy with one store."""
    folder = tmp_path_factory.mktemp("proxy")
    (folder / "proxy_limits.py").write_text(LIMITS)
    (folder / "config.yaml").write_text(CONFIGURATION % model.url)
    store = f"{session_redis.url}?deadline=10s"
    with (folder / "log").open("ab") as log, proxy(folder, store, log) as one, proxy(folder, store, log) as other:
        yield one, other


@pytest.fixture
def used(session_redis):
    limiter = Limiter(f"{session_redis.url}?deadline=10s", POLICIES)

    def used(team, **expected):
        """What a team has used, once that is what is expected."""

        def now():
            quotas = {name: limiter.peek(f"team:{team}", name).quotas for name in POLICIES}
            return {name: quota[0].limit - quota[0].remaining for name, quota in quotas.items()} | {
                "slots": 3 - quotas["requests"][1].remaining
            }

        # LiteLLM logs usage after it has answered.
        end = time.monotonic() + (30 if expected else 0)
        while now() != expected and time.monotonic() < end:
            time.sleep(0.05)
        return now()

    return used


def ask(url, team, content, *, stream=False, timeout=60, **fields):
    body = {"model": "model", "messages": [{"role": "user", "content": content}], "stream": stream, **fields}
    headers = {"authorization": f"Bearer {team}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=timeout)


def spent(tokens, *, requests=1, slots=0):
    """What calls have used whose answers had these numbers of tokens."""
    prompts = PROMPT_TOKENS * len(tokens)
    return {
        "requests": requests,
        "tokens": prompts + sum(tokens),
        "answers": sum(tokens),
        "money": 2 * prompts + 8 * sum(tokens),
        "slots": slots,
    }


@pytest.mark.parametrize("stream", [False, True])
def test_call_spends_what_the_model_reports(proxies, used, stream):
    team = f"reports-{stream}"
    for url in proxies:
        response = ask(url, team, "5", stream=stream, max_tokens=100)
        assert response.status_code == 200
        # A client that has not requested the usage of a stream gets none.
        assert ("completion_tokens" in response.text) == (not stream), response.text
    expected = spent([5, 5], requests=2)
    assert used(team, **expected) == expected


def test_answer_longer_than_its_estimate_is_charged(proxies, used):
    assert ask(proxies[0], "longer", "700").status_code == 200
    expected = spent([700])
    assert used("longer", **expected) == expected


def test_stream_is_passed_on_while_it_is_made_and_holds_its_estimate_meanwhile(proxies, model, used):
    body = {"model": "model", "messages": [{"role": "user", "content": "3 waits"}], "stream": True, "max_tokens": 200}
    with httpx.stream(
        "POST", f"{proxies[0]}/v1/chat/completions", json=body, headers={"authorization": "Bearer streams"}, timeout=60
    ) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert "word" in next(line for line in lines if line)
        now = used("streams")
        assert (now["answers"], now["slots"]) == (200, 1)
        model.released.set()
        assert list(lines)[-2:] == ["data: [DONE]", ""]
    expected = spent([3])
    assert used("streams", **expected) == expected


def test_call_beyond_a_limit_is_refused_and_not_sent(proxies, model, used):
    asked = model.asked
    response = ask(proxies[0], "beyond", "5", max_tokens=95_000)
    assert response.status_code == 429
    assert "answers" in response.text
    assert "ratelimit" in response.headers, response.headers
    assert ask(proxies[0], "beyond", "5", max_tokens=90_000).status_code == 200
    expected = spent([5])
    assert used("beyond", **expected) == expected
    # The estimate of a call that cannot fit now is refused with the time to wait.
    assert ask(proxies[1], "beyond", "80000", max_tokens=80_000).status_code == 200
    response = ask(proxies[0], "beyond", "5", max_tokens=20_000)
    assert (response.status_code, int(response.headers["retry-after"]) > 0) == (429, True)
    assert model.asked == asked + 2


def test_call_that_fails_spends_nothing(proxies, used):
    assert ask(proxies[0], "fails", "5 fails").status_code == 500
    expected = spent([]) | {"requests": 0}
    assert used("fails", **expected) == expected


def test_caller_with_too_many_calls_at_a_time_is_refused(proxies, model, used):
    model.released.clear()
    with contextlib.ExitStack() as stack:
        calls = []
        for url in (*proxies, proxies[0]):
            client = stack.enter_context(httpx.Client(timeout=60, headers={"authorization": "Bearer slots"}))
            body = {"model": "model", "messages": [{"role": "user", "content": "2 waits"}], "stream": True}
            request = client.build_request("POST", f"{url}/v1/chat/completions", json=body)
            calls.append(client.send(request, stream=True))
        assert [call.status_code for call in calls] == [200] * 3
        assert ask(proxies[1], "slots", "5").status_code == 429
        model.released.set()
        for call in calls:
            call.read()
    expected = spent([2, 2, 2], requests=3)
    assert used("slots", **expected) == expected


def test_streams_of_two_processes_stay_within_one_limit(proxies, used):
    """Each may take 3,000 tokens of 90,000 for answers."""

    async def crowd():
        async with httpx.AsyncClient(timeout=120, headers={"authorization": "Bearer crowd"}) as client:

            async def one(number):
                # Three at a time for a caller: others try again.
                while True:
                    body = {
                        "model": "model",
                        "messages": [{"role": "user", "content": "3000"}],
                        "stream": True,
                        "max_tokens": 3000,
                    }
                    response = await client.post(f"{proxies[number % 2]}/v1/chat/completions", json=body)
                    if response.status_code == 200 or "answers" in response.text:
                        return response.status_code
                    await asyncio.sleep(0.05)

            return await asyncio.gather(*(one(number) for number in range(40)))

    statuses = asyncio.run(crowd())
    assert (statuses.count(200), statuses.count(429)) == (30, 10)
    expected = spent([3000] * 30, requests=30)
    assert used("crowd", **expected) == expected


def test_program_of_the_page_limits_a_proxy(model, session_redis, tmp_path):
    page = (Path(__file__).parents[3] / "docs/litellm.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (settings,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert "redis://localhost:6379" in program
    (tmp_path / "limits.py").write_text(program.replace("redis://localhost:6379", f"{session_redis.url}?deadline=10s"))
    key = "      api_key: os.environ/OPENAI_API_KEY\n"
    assert key in settings
    (tmp_path / "config.yaml").write_text(settings.replace(key, f"      api_base: {model.url}\n      api_key: none\n"))
    with (tmp_path / "log").open("ab") as log, proxy(tmp_path, "", log) as url:

        def status(max_tokens):
            return ask(url, MASTER_KEY, "5", model="gpt-4o-mini", max_tokens=max_tokens).status_code

        assert [status(tokens) for tokens in (99_000, 100_000)] == [200, 429]


def test_settings_that_mean_nothing_are_refused():
    limiter = AsyncLimiter("memory:", {"tokens": "10/minute"})
    for policies, message in [
        ({}, "policies is empty"),
        ({"tokens": "token"}, 'policy tokens counts "token": allowed are requests, tokens'),
        ({"token": "tokens"}, "token"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            RateLimits(limiter, policies)
    with pytest.raises(InvalidArgumentError, match="max_tokens is -1"):
        RateLimits(limiter, {"tokens": "tokens"}, max_tokens=-1)
    with pytest.raises(TypeError, match="AsyncLimiter"):
        RateLimits(Limiter("memory:", {"tokens": "10/minute"}), {"tokens": "tokens"})
