"""Limits of Sanic that the cases of guards do not cover: its routes, blueprints, failures and protocols."""

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import sanic
import uvicorn
from polylimit import AsyncLimiter
from polylimit.sanic import limit, request_limits, setup
from sanic import Blueprint, text
from sanic.views import HTTPMethodView
from sanic_server import application, request, serve, stop

ONCE = "1/hour fixed_window"
RULE = """
[[rules]]
match = {{ route = "{route}" }}
apply = [{{ policy = "api", key = "all" }}]
"""


async def view(_request, **_parameters):
    return text("view")


def served(app, test):
    """Run an asynchronous test with the URL of an application that is served."""

    async def run():
        server, url = await serve(app)
        try:
            return await test(url)
        finally:
            await stop(server)

    return asyncio.run(run())


def statuses(app, *paths):
    """The statuses of requests, one after another."""

    async def test(url):
        return [(await request("GET", url + path, {}))[0] for path in paths]

    return served(app, test)


async def remaining_is(limiter, policy, remaining):
    """Wait until a policy has so much left for this host."""
    async with asyncio.timeout(60):
        while (await limiter.peek("127.0.0.1", policy)).remaining != remaining:
            await asyncio.sleep(0.01)


@pytest.fixture
def limiter():
    return AsyncLimiter(policies={"api": ONCE, "held": "1 concurrent"})


def test_application_counts_requests_for_unknown_paths(limiter):
    app = application()
    app.add_route(view, "/", name="view")
    setup(app, limiter, "api")
    assert statuses(app, "nothing", "nothing") == [404, 429]


def test_blueprint_has_a_budget_under_each_name(limiter):
    app, part = application(), Blueprint("part", url_prefix="/a")
    part.add_route(view, "/x", name="x")
    part.add_route(view, "/y", name="y")
    setup(part, limiter, ONCE)
    app.add_route(view, "/free", name="free")
    app.blueprint(part)
    app.blueprint(part.copy("other", url_prefix="/b"))
    found = statuses(app, "a/x", "a/y", "b/x", "b/y", "free", "free")
    # Before 23.3 the routes of a copy have the name of the original.
    of_copy = 429 if sanic.__version__.startswith("22.") else 200
    assert found == [200, 429, of_copy, 429, 200, 200]


def test_handlers_of_one_path_have_budgets_of_their_own(limiter):
    app, limited = application(), limit(limiter, ONCE)(view)
    app.add_route(limited, "/x", methods=["GET"], name="get")
    app.add_route(limited, "/x", methods=["POST"], name="post")

    async def test(url):
        return [(await request(method, url + "x", {}))[0] for method in ("GET", "POST", "GET", "POST")]

    assert served(app, test) == [200, 200, 429, 429]


def test_methods_of_a_class_are_limited(limiter):
    class View(HTTPMethodView):
        @limit(limiter, "api")
        def get(self, request):
            return text(str(request_limits(request).outcomes[0][1].remaining))

        def post(self, _request):
            return text("post")

    app = application()
    app.add_route(View.as_view(), "/x")

    async def test(url):
        return [await request(method, url + "x", {}) for method in ("GET", "GET", "POST")]

    answers = served(app, test)
    assert [(status, body) for status, _, body in answers][::2] == [(200, "0"), (200, "post")]
    assert answers[1][0] == 429


@pytest.mark.parametrize(
    ("path", "route", "sent"),
    [
        ("/login", "/login", "login"),
        ("/users/<id:int>", "/users/{id}", "users/7"),
        (
            "/users/<id>/posts/<post:uuid>",
            "/users/{id}/posts/{post}",
            f"users/a/posts/{'0' * 8}-{'-'.join(['0000'] * 3)}-{'0' * 12}",
        ),
        (r"/plans/<plan:(?P<plan>[a-z]+)>", "/plans/{plan}", "plans/gold"),
        ("/files/<rest:path>", "/files/{*rest}", "files/a/b"),
    ],
)
def test_rules_know_the_route(path, route, sent):
    document = "polylimit = 1\n" + f'[policies.api]\nquotas = "{ONCE}"\n' + RULE.format(route=f"/v1{route}")
    app, part = application(), Blueprint("part", url_prefix="/v1")
    part.add_route(view, path, name="limited")
    part.add_route(view, "/free", name="free")
    app.blueprint(part)
    setup(app, AsyncLimiter(document=document))
    assert statuses(app, "v1/free", f"v1/{sent}", f"v1/{sent}", "v1/free") == [200, 200, 429, 200]


def test_fields_are_on_a_response_that_a_middleware_has_replaced(limiter):
    app = application()
    app.add_route(view, "/", name="view")
    setup(app, limiter, "api")
    app.on_response(lambda _request, _response: text("replaced", status=202))
    status, fields, body = served(app, lambda url: request("GET", url, {}))
    assert (status, body) == (202, "replaced")
    assert '"api";r=0' in fields["ratelimit"]


def test_request_that_cannot_be_read_is_not_counted(limiter):
    app = application()
    app.add_route(view, "/", name="view")
    setup(app, limiter, "api")

    async def test(url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":")[-1].strip("/")))
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n")
        unread = await reader.read()
        writer.close()
        return unread.split()[1], (await request("GET", url, {}))[0]

    # It is 500 in older versions.
    assert served(app, test) in ((b"400", 200), (b"500", 200))


def test_place_is_free_when_the_client_leaves_before_the_response(limiter):
    app, begun = application(), asyncio.Event()

    @app.get("/")
    @limit(limiter, "held")
    async def waiting(_request):
        begun.set()
        await asyncio.Event().wait()

    async def test(url):
        async with aiohttp.ClientSession() as session:
            left = asyncio.ensure_future(session.get(url))
            await begun.wait()
            await remaining_is(limiter, "held", 0)
            left.cancel()
        await remaining_is(limiter, "held", 1)

    served(app, test)


async def failing(request):
    response = await request.respond()
    await response.send("view")
    raise ValueError("the handler fails")


def test_place_is_free_when_a_response_fails(limiter):
    app = application()
    app.add_route(failing, "/", name="failing")
    setup(app, limiter, "held")

    async def test(url):
        assert (await request("GET", url, {}))[2] == "view"
        await remaining_is(limiter, "held", 1)

    served(app, test)


def test_server_of_asgi_runs_the_limits(limiter):
    app = application()
    app.add_route(failing, "/failing", name="failing")
    app.add_route(view, "/view", name="view")
    setup(app, limiter, ["held", "3/hour"])

    async def test():
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        answers = [(await request("GET", f"{url}/view", {}))[0]]
        with contextlib.suppress(aiohttp.ClientError):
            await request("GET", f"{url}/failing", {})
        await remaining_is(limiter, "held", 1)
        answers += [(await request("GET", f"{url}/view", {}))[0] for _ in range(2)]
        server.should_exit = True
        await serving
        return answers

    assert asyncio.run(test()) == [200, 200, 429]


def test_web_sockets_pass_and_their_handlers_cannot_be_limited(limiter):
    app = application()

    @app.websocket("/echo")
    async def echo(_request, socket):
        await socket.send(await socket.recv())

    @app.websocket("/limited")
    @limit(limiter, "api")
    async def limited(_request, socket):
        await socket.send("reached")

    setup(app, limiter, "api")

    async def test(url):
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                async with session.ws_connect(f"{url}echo") as connection:
                    await connection.send_str("hello")
                    assert await connection.receive_str() == "hello"
            async with session.ws_connect(f"{url}limited") as connection:
                assert (await connection.receive()).type is not aiohttp.WSMsgType.TEXT
            # A request that only claims to be a web socket is limited.
            fields = {"connection": "upgrade", "upgrade": "websocket"}
            return [(await request("GET", f"{url}nothing", fields))[0] for _ in range(2)]

    assert served(app, test) == [404, 429]


def test_mistakes_in_options_are_refused(limiter):
    app = application()
    with pytest.raises(TypeError, match="polcy"):
        setup(app, limiter, polcy="api")
    with pytest.raises(TypeError, match="the decorated handler is"):
        limit(limiter, "api")(HTTPMethodView)


def test_program_of_the_readme_runs(tmp_path, local):
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (program,) = (
        block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "polylimit.sanic" in block
    )
    program = program.replace("local:web", local)
    program += f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import asyncio
from sanic_server import request, serve, stop

async def main():
    server, url = await serve(app)
    print([(await request("POST", url + "login", {{}}))[0] for _ in range(6)])
    await stop(server)

asyncio.run(main())
"""
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[200, 200, 200, 200, 200, 429]", done.stderr
