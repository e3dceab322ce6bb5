"""The Python of the recipes, each page's program as it stands there, with a real Redis and real frameworks."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}/", handler=handler)
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
    """Two jobs of a tenant run at a time, and those of others beside them."""
    made = recipe("background-jobs.md", {"redis://localhost:6379": redis}, tmp_path, monkeypatch)
    inner: list[bool] = []

    def two_run() -> None:
        inner.append(made.run("acme", lambda: None, timeout=0))
        inner.append(made.run("globex", lambda: None, timeout=0))

    assert made.run("acme", lambda: inner.append(made.run("acme", two_run, timeout=0)), timeout=0)
    assert inner == [False, True, True]
    assert made.run("acme", lambda: None)
