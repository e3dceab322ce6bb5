"""The Python of the recipes, each page's program as it stands there, with a real Redis and real frameworks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from polylimit import Limiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs" / "recipes"
sys.path.insert(0, str(ROOT / "examples" / "support"))
from own_redis import Redis  # noqa: E402  where it stands is known only here


@pytest.fixture
def redis() -> Iterator[str]:
    """Yield the URL of a server. A busy machine has ten seconds for a decision."""
    with Redis() as server:
        yield f"{server.url}?deadline=10s"


def recipe(page: str, stands_for: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Run the program of a page in a folder with the page's document, and return what it defines."""
    text = (RECIPES / page).read_text()
    for document in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        (folder / "limits.toml").write_text(document)
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for named, here in stands_for.items():
        assert named in program, f"{page} does not name {named}"
        program = program.replace(named, here)
    monkeypatch.chdir(folder)
    defined: dict[str, Any] = {"__name__": page}
    exec(compile(program, page, "exec"), defined)  # noqa: S102  the page is the repository's own
    return SimpleNamespace(**defined)


def test_login_counts_failures_only_and_blocks_who_does_not_stop(
    redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is open to others while one client is blocked."""
    app = recipe("login.md", {"redis://localhost:6379": redis}, tmp_path, monkeypatch).app.test_client()

    def login(name: str, password: str, address: str = "192.0.2.7") -> Any:
        form = {"name": name, "password": password}
        return app.post("/login", data=form, environ_base={"REMOTE_ADDR": address})

    assert [login("alice", "correct horse").status_code for _ in range(10)] == [200] * 10
    assert [login("Alice ", "x").status_code for _ in range(5)] == [401] * 5
    denied = [login("alice", "correct horse") for _ in range(3)]
    assert [response.status_code for response in denied] == [429] * 3
    assert int(denied[-1].headers["retry-after"]) <= 15 * 60
    assert login("alice", "correct horse", "192.0.2.8").status_code == 200
    assert login("", "x").status_code == 400


def test_plans_have_limits_of_their_own(redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tenant has the numbers of its plan, and a better plan keeps what was used."""
    made = recipe("api-plans.md", {"redis://localhost:6379": redis}, tmp_path, monkeypatch)
    with TestClient(made.app, client=("192.0.2.7", 50000)) as client:

        def asked(key: str) -> tuple[int, str]:
            response = client.get("/v1/items", headers={"x-api-key": key})
            return response.status_code, response.headers["ratelimit-policy"]

        for key, shown in [("key-of-acme", "q=60;"), ("key-of-globex", "q=600;"), ("another", "q=10;")]:
            status, policy = asked(key)
            assert status == 200
            assert shown in policy
        assert [asked("another")[0] for _ in range(10)] == [200] * 9 + [429]


def test_answers_commit_what_they_took(redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an answer did not take is free again, and a tenant without tokens is denied."""
    made = recipe("language-models.md", {"redis://localhost:6379": redis}, tmp_path, monkeypatch)
    with TestClient(made.app) as client:

        def ask(**options: Any) -> Any:
            return client.get("/answer", params={"prompt": "one two", **options}, headers={"x-tenant": "acme"})

        assert ask(max_tokens=90_000).text == "You said: one two "
        # Another answer of this size fits only if the first has committed 6 tokens.
        assert ask(max_tokens=90_000).status_code == 200
        # More than the bucket holds: no wait helps.
        denied = ask(max_tokens=100_000)
        assert (denied.status_code, denied.json()) == (429, {"retry_after": None})


class Provider(BaseHTTPRequestHandler):
    """Responds to each prompt with 1,000 input tokens, 400 of them cached, and 200 output tokens, or fails."""

    usage = '{"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 400}}'

    def do_POST(self) -> None:
        """Respond as OpenAI's interface does."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert asked["max_tokens"] <= 4_000
        if asked["messages"][0]["content"] == "fail":
            self.respond(500, "application/json", '{"error": {}}')
        elif not asked.get("stream"):
            self.respond(200, "application/json", f'{{"choices": [], "usage": {self.usage}}}')
        else:
            last = self.usage if asked["stream_options"]["include_usage"] else "null"
            events = [
                '{"choices": [{"delta": {"content": "Hi"}}], "usage": null}',
                f'{{"choices": [], "usage": {last}}}',
            ]
            self.respond(200, "text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]))

    def respond(self, status: int, kind: str, body: str) -> None:
        """Send a response."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_gateway_charges_what_the_provider_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each team pays for its usage, streamed or not, and is served while Redis is away; the dashboard shows it."""
    with Redis() as redis, serving(Provider) as provider:
        stands_for = {
            "redis://localhost:6379": f"{redis.url}?deadline=10s",
            "https://api.openai.com": provider,
        }
        made = recipe("model-gateway.md", stands_for, tmp_path, monkeypatch)
        with TestClient(made.app) as client:

            def ask(content: str, key: str = "key-of-search", **options: Any) -> Any:
                body = {"messages": [{"content": content}], **options}
                return client.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})

            def spent(team: str = "search", budget: int = 50_000_000) -> int:
                return budget - made.limiter.blocking.peek(team, "micro_dollars").remaining

            # 2.5 * 1,000 - 1.25 * 400 + 10 * 200
            assert (ask("hello", max_tokens=100_000).status_code, spent()) == (200, 4_000)
            streamed = ask("hello", stream=True)
            assert streamed.text.endswith("data: [DONE]\n\n")
            assert spent() == 8_000
            # A response without usage costs its estimate: 4,000 tokens, and some for the prompt.
            assert ask("fail").status_code == 500
            assert 8_000 + 40_000 <= spent() <= 8_000 + 41_000
            assert (ask("hello", "key-of-research").status_code, spent("research", 500_000_000)) == (200, 4_000)
            assert ask("hello", "another key").status_code == 400
            made.limiter.blocking.charge("search", "micro_dollars", cost=49_950_000)
            denied = ask("hello")
            assert (denied.status_code, denied.json()["violated-policies"]) == (429, ["micro_dollars"])
            seen_on_the_dashboard(redis.url, spent())
            redis.kill()
            outage = ask("hello", "key-of-research")
            assert (outage.status_code, outage.headers["x-ratelimit-outage"]) == (200, "fallback")


def seen_on_the_dashboard(store: str, used: int) -> None:
    """Run the server of the page: it has the document of the folder, and what the team has used."""
    (line,) = re.findall(r"```console\n\$ polylimit (.*)\n```", (RECIPES / "model-gateway.md").read_text())
    stands_for = {"redis://localhost": store, "http://127.0.0.1:8181": "http://127.0.0.1:0"}
    command = [str(ROOT / "target" / "debug" / "polylimit"), *(stands_for.get(word, word) for word in line.split())]
    command += ["--listen", "http://127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            # The second listener is the one of operators. A server that does not start ends the lines.
            lines = iter(server.stderr or [])
            addresses = (found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            _, address = islice(addresses, 2)
            threading.Thread(target=lambda: list(lines), daemon=True).start()
            assert "<html" in httpx.get(address).text
            explained = httpx.post(f"{address}/v1/explain", json={"policy": "micro_dollars", "key": "search"})
            assert [quota["used"] for quota in explained.json()["quotas"]] == [used]
        finally:
            server.terminate()


class Receiver(BaseHTTPRequestHandler):
    """Answers the first request by 429, and all others by 200."""

    requests = 0

    def answer(self) -> None:
        """Count the request, and answer it."""
        type(self).requests += 1
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status, body = (429, b"") if type(self).requests == 1 else (200, b"12.50")
        self.send_response(status)
        if status == 429:
            self.send_header("retry-after", "1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815  the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def receiver() -> Iterator[SimpleNamespace]:
    """Yield a server of its own, with its URL and its handler."""
    handler = type("OwnReceiver", (Receiver,), {})
    with serving(handler) as url:
        yield SimpleNamespace(url=f"{url}/", handler=handler)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yield the URL of a server with this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_webhooks_of_a_busy_host_go_back_to_the_queue(
    redis: str, receiver: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host with a long queue denies at once, and a failed delivery is tried later."""
    made = recipe("webhooks.md", {"redis://localhost:6379": redis}, tmp_path, monkeypatch)

    async def main() -> list[float | None]:
        async with made.limiter, httpx.AsyncClient() as client:
            outcomes = [await made.deliver(client, receiver.url, {"number": number}) for number in range(3)]
            await made.limiter.charge(urlsplit(receiver.url).netloc, "webhook", cost=80)
            return [*outcomes, await made.deliver(client, receiver.url, {"number": 3})]

    first, second, third, busy = asyncio.run(main())
    assert (first, second, third) == (60.0, None, None)
    assert busy is not None
    assert busy > 10
    assert receiver.handler.requests == 3


def test_outgoing_calls_wait_as_the_other_side_asks(
    redis: str, receiver: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 429 is tried again after its wait; the caller sees the second answer."""
    stands_for = {"redis://localhost:6379": redis, "https://api.example.com/": receiver.url}
    made = recipe("outgoing-calls.md", stands_for, tmp_path, monkeypatch)
    with made.client:
        assert made.balance("alice") == "12.50"
    assert receiver.handler.requests == 2


def test_jobs_beyond_the_slots_go_back_to_the_queue(
    redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of a tenant run at a time, and those of others alongside them."""
    made = recipe("background-jobs.md", {"redis://localhost:6379": redis}, tmp_path, monkeypatch)
    inner: list[bool] = []

    def two_run() -> None:
        inner.append(made.run("acme", lambda: None, timeout=0))
        inner.append(made.run("globex", lambda: None, timeout=0))

    assert made.run("acme", lambda: inner.append(made.run("acme", two_run, timeout=0)), timeout=0)
    assert inner == [False, True, True]
    assert made.run("acme", lambda: None)


#: The command of a worker of each queue, and what sends a task to it.
QUEUES = {
    "Celery": (["celery", "--app", "tasks", "worker", "--concurrency", "2"], "export.delay"),
    "RQ": (["rq.cli", "worker", "--with-scheduler", "--url"], "tasks.queue.enqueue"),
    "Dramatiq": (["dramatiq", "tasks", "--processes", "1", "--threads", "2"], "export.send"),
}


@pytest.mark.parametrize("name", QUEUES)
def test_tasks_go_back_to_their_queue(name: str, tmp_path: Path) -> None:
    """A tenant that has its two slots in use waits in the queue, and a worker runs the tasks of another one."""
    text = (RECIPES / "task-queues.md").read_text()
    program = re.findall(rf"^\*\*{name}\*\*\n\n```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)[0]
    command, send = QUEUES[name]
    with Redis() as redis, (tmp_path / "log").open("w+") as log:
        limited = 'Limiter("redis://localhost:6379"'
        assert limited in program
        program = program.replace(limited, f'Limiter("{redis.url}?deadline=10s"')
        (tmp_path / "tasks.py").write_text(program.replace("redis://localhost:6379", redis.url))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        worker = subprocess.Popen(
            [sys.executable, "-m", *command, *([redis.url] if name == "RQ" else [])],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(tmp_path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            with Limiter(f"{redis.url}?deadline=10s", {"exports": "2 concurrent; 100/day"}) as limiter:
                slots = [limiter.reserve("acme", "exports") for _ in range(2)]
                task = "tasks.export, " if name == "RQ" else ""
                sent = (
                    f"import tasks; from tasks import export; [{send}({task}one) for one in ('acme', 'globex', 'acme')]"
                )
                subprocess.run([sys.executable, "-c", sent], cwd=tmp_path, check=True, timeout=120)
                wait_until(lambda: "exported globex" in (tmp_path / "log").read_text())
                assert "exported acme" not in (tmp_path / "log").read_text()
                for slot in slots:
                    slot.cancel()
                wait_until(lambda: (tmp_path / "log").read_text().count("exported acme") == 2)
                wait_until(lambda: limiter.peek("acme", "exports").remaining == 98)
        except BaseException:
            sys.stderr.write((tmp_path / "log").read_text())
            raise
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that a busy machine does late."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
