"""FastAPI, with the oldest and the newest version."""

import asyncio
from collections import Counter

import fastapi
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, WebSocket
from fastapi.testclient import TestClient
from polylimit import AsyncLimiter, InvalidArgumentError, keys
from polylimit._versions import is_older
from polylimit.fastapi import DeniedError, RateLimit, RateLimitMiddleware, exempt
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocketDisconnect

ONCE = "1/hour fixed_window"
DOCUMENT = """polylimit = 1
[policies.p]
quotas = "1/hour fixed_window"
[[rules]]
match = { ATTRIBUTE = "/v1/users/{id}" }
apply = [{ policy = "p", key = "{client}" }]
"""


async def ran():
    return "ran"


def router(*dependencies):
    made = APIRouter()
    made.add_api_route("/{id}", ran, methods=["GET"], dependencies=[Depends(one) for one in dependencies])
    return made


def statuses(app, *paths, times=2, **options):
    web = TestClient(app)
    return [web.get(path, **options).status_code for path in paths for _ in range(times)]


def test_application_depends_on_a_limit():
    app = FastAPI(dependencies=[Depends(RateLimit(AsyncLimiter(), ONCE))])
    app.add_api_route("/x", ran)
    app.add_api_route("/y", ran)
    assert statuses(app, "/x", "/y") == [200, 429, 200, 429]


def test_included_routers_have_budgets_of_their_own():
    limit = RateLimit(AsyncLimiter(), ONCE)
    app, outer, part = FastAPI(), APIRouter(prefix="/outer"), router(limit)
    outer.include_router(part, prefix="/inner")
    app.include_router(part, prefix="/a")
    app.include_router(router(limit), prefix="/b")
    app.include_router(outer, prefix="/c")
    app.include_router(outer)
    paths = ["/a/1", "/b/1", "/c/outer/inner/1", "/outer/inner/1"]
    assert statuses(app, *paths) == [200, 429] * len(paths)
    assert statuses(app, "/a/2") == [429, 429], "a parameter is no part of the route"


def test_mounted_applications_have_budgets_of_their_own():
    limit = RateLimit(AsyncLimiter(), ONCE)
    app, inner = FastAPI(), FastAPI()
    inner.include_router(router(limit), prefix="/x")
    app.include_router(router(limit), prefix="/x")
    app.mount("/m", inner)
    app.mount("/n", inner)
    app.mount("/tenants/{tenant}", inner)
    assert statuses(app, "/m/x/1", "/n/x/1", "/x/1", "/tenants/1/x/1") == [200, 429] * 4
    assert statuses(app, "/tenants/2/x/1") == [429, 429], "the parameter of a mount is no part of the route"


@pytest.mark.parametrize("at", ["router", "inclusion", "outer inclusion", "route"])
@pytest.mark.parametrize("takes_its_place", ["exempt", "override"])
def test_limit_of_the_application_is_replaced(at, takes_its_place):
    limiter = AsyncLimiter(policies={"b": ONCE, "wide": "2/hour fixed_window"})
    other = exempt if takes_its_place == "exempt" else RateLimit(limiter, "wide", override=True)
    depends = {place: [Depends(other)] if place == at else [] for place in ("router", "inclusion", "outer inclusion")}
    app = FastAPI(dependencies=[Depends(RateLimit(limiter, "b"))])
    part, outer = APIRouter(dependencies=depends["router"]), APIRouter()
    part.include_router(router(*([other] if at == "route" else [])))
    outer.include_router(part, prefix="/in", dependencies=depends["inclusion"])
    app.include_router(outer, prefix="/out", dependencies=depends["outer inclusion"])
    app.include_router(router(), prefix="/limited")
    expected = [200] * 4 if takes_its_place == "exempt" else [200, 200, 429, 429]
    assert statuses(app, "/out/in/1", times=4) == expected
    assert statuses(app, "/limited/1") == [200, 429]


@pytest.mark.parametrize("attribute", ["route", "path"])
@pytest.mark.parametrize("is_mounted", [False, True])
def test_rules_of_a_document_have_the_route_with_prefixes(attribute, is_mounted):
    limiter = AsyncLimiter(document=DOCUMENT.replace("ATTRIBUTE", attribute))
    app = inner = FastAPI(dependencies=[Depends(RateLimit(limiter))])
    if is_mounted:
        app = FastAPI()
        app.mount("/v1", inner)
    inner.include_router(router(), prefix="/users" if is_mounted else "/v1/users")
    assert statuses(app, "/v1/users/1") == [200, 429]
    assert statuses(app, "/v1/users/1", headers={"host": "other.example"}) == [429, 429]


def connect(web, path):
    try:
        with web.websocket_connect(path) as socket:
            return socket.receive_text()
    except WebSocketDisconnect as refused:
        # Newer versions show the response to the handshake, and have no code then.
        return refused.status_code if hasattr(refused, "status_code") else refused.code


async def echo(socket: WebSocket):
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


@pytest.mark.parametrize("at", ["route", "router", "inclusion", "application"])
@pytest.mark.parametrize("has_middleware", [False, True])
def test_handshakes_of_web_sockets_are_limited(at, has_middleware):
    limit = [Depends(RateLimit(AsyncLimiter(), "2/hour fixed_window"))]
    app = FastAPI(dependencies=limit if at == "application" else [])
    if has_middleware:
        app.add_middleware(RateLimitMiddleware)
    part = APIRouter(dependencies=limit if at == "router" else [])
    part.add_api_websocket_route("/ws/{id}", echo, dependencies=limit if at == "route" else [])
    app.include_router(part, prefix="/v1", dependencies=limit if at == "inclusion" else [])
    app.include_router(part, prefix="/v2", dependencies=limit if at == "inclusion" else [])
    web = TestClient(app)
    outcomes = [connect(web, f"/v1/ws/{number}") for number in range(4)]
    assert outcomes[:2] == ["hello", "hello"]
    assert set(outcomes[2:]) <= {429, 1008}
    assert connect(web, "/v2/ws/1") == "hello"


def test_web_socket_holds_its_slot_until_it_is_closed():
    limiter = AsyncLimiter(policies={"slots": "1 concurrent"})
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware)
    app.add_api_websocket_route("/ws", waiting, dependencies=[Depends(RateLimit(limiter, "slots"))])
    web = TestClient(app)
    with web.websocket_connect("/ws") as socket:
        assert socket.receive_text() == "hello"
        assert connect(web, "/ws") in {429, 1008}
        socket.send_text("done")
        with pytest.raises(WebSocketDisconnect):
            socket.receive_text()
    with web.websocket_connect("/ws") as socket:
        assert socket.receive_text() == "hello"
        socket.send_text("done")


async def waiting(socket: WebSocket):
    await socket.accept()
    await socket.send_text("hello")
    await socket.receive_text()
    await socket.close()


def test_background_task_charges():
    limiter = AsyncLimiter(policies={"tokens": "1000/hour fixed_window"})
    app = FastAPI()

    @app.get("/a")
    async def a(tasks: BackgroundTasks):
        tasks.add_task(limiter.charge, "tenant", cost=400)

    assert TestClient(app).get("/a").status_code == 200
    assert limiter.blocking.peek("tenant").remaining == 600


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"policy": "100/minit"}, InvalidArgumentError),
        ({"policy": ONCE, "methods": ["G T"]}, InvalidArgumentError),
        ({"policy": ONCE, "cors_origins": ["app.example"]}, InvalidArgumentError),
        ({"policy": ONCE, "keys": "x"}, TypeError),
    ],
)
def test_mistake_in_an_option_of_add_middleware_is_reported_where_it_stands(options, error):
    app = FastAPI()
    with pytest.raises(error):
        app.add_middleware(RateLimitMiddleware, limit=RateLimit(AsyncLimiter(), **options))
    app.add_middleware(RateLimitMiddleware, limiter=AsyncLimiter(), **options)
    with pytest.raises(error), TestClient(app):
        pass


def test_middleware_takes_a_limit_alone():
    limit = RateLimit(AsyncLimiter(), ONCE)
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limit=limit)
    app.add_api_route("/x", ran)
    app.add_api_route("/y", ran)
    assert statuses(app, "/x", "/y") == [200, 429, 429, 429], "an application has one budget"
    for options in ({"limiter": AsyncLimiter()}, {"policy": ONCE}, {"status": 418}):
        with pytest.raises(TypeError, match=r"limit and .* are given"):
            RateLimitMiddleware(app, limit=limit, **options)
    with pytest.raises(TypeError, match="allowed is a Limit"):
        RateLimitMiddleware(app, limit=AsyncLimiter())
    with pytest.raises(TypeError, match="override"):
        RateLimitMiddleware(app, limit=RateLimit(AsyncLimiter(), ONCE, override=True))


def preflight():
    return {"origin": "https://app.example", "access-control-request-method": "POST"}


@pytest.mark.parametrize("key", [None, lambda _request: "all"])
def test_preflights_are_not_counted_by_a_middleware(key):
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limit=RateLimit(AsyncLimiter(), ONCE, key=key))
    app.add_api_route("/x", ran, methods=["GET", "OPTIONS"])
    web = TestClient(app)
    assert [web.options("/x", headers=preflight()).status_code for _ in range(3)] == [200] * 3
    assert [web.options("/x").status_code for _ in range(2)] == [200, 429], "a request of a program is no preflight"


def test_handler_of_options_is_limited_by_its_dependency():
    app = FastAPI()
    limit = RateLimit(AsyncLimiter(), ONCE)
    app.add_api_route("/x", ran, methods=["OPTIONS"], dependencies=[Depends(limit)])
    web = TestClient(app)
    assert [web.options("/x", headers=preflight()).status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("on_denied", [None, lambda _request, denial: PlainTextResponse("no", denial.problem.status)])
@pytest.mark.parametrize("at", ["middleware", "dependency", "dependency and middleware"])
def test_denial_has_the_fields_of_cors(on_denied, at):
    limit = RateLimit(AsyncLimiter(), ONCE, cors_origins=["https://app.example"], on_denied=on_denied)
    app = FastAPI(dependencies=[Depends(limit)] if "dependency" in at else [])
    if "middleware" in at:
        app.add_middleware(RateLimitMiddleware, limit=None if "dependency" in at else limit)
    app.add_api_route("/x", ran)
    web = TestClient(app)
    origin = {"origin": "https://app.example"}
    assert "access-control-allow-origin" not in web.get("/x", headers=origin).headers
    denied = web.get("/x", headers=origin)
    assert (denied.status_code, denied.headers["access-control-allow-origin"]) == (429, "https://app.example")
    assert "retry-after" in denied.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in web.get("/x", headers={"origin": "https://evil.example"}).headers


def test_own_fields_of_cors_stay():
    def on_denied(_request, _denial):
        return PlainTextResponse("no", 429, {"access-control-allow-origin": "https://own.example"})

    app = FastAPI()
    limit = RateLimit(AsyncLimiter(), ONCE, cors_origins="*", on_denied=on_denied)
    app.add_middleware(RateLimitMiddleware, limit=limit)
    denied = [TestClient(app).get("/", headers={"origin": "https://app.example"}) for _ in range(2)][1]
    assert denied.headers.get_list("access-control-allow-origin") == ["https://own.example"]


@pytest.mark.parametrize("part", [keys.header("x-key"), keys.cookie("key"), lambda _request: "", lambda _request: b""])
def test_empty_key_is_missing(part):
    app = FastAPI(dependencies=[Depends(RateLimit(AsyncLimiter(), ONCE, key=part, missing_key="refuse"))])
    app.add_api_route("/x", ran)
    assert statuses(app, "/x", headers={"x-key": "", "cookie": "key="}) == [400, 400]


def test_head_counts_with_get():
    for separate_head, expected in ((False, [200, 429]), (True, [200, 200])):
        app = FastAPI()
        limit = RateLimit(AsyncLimiter(), ONCE, methods=["get"], separate_head=separate_head)
        app.add_api_route("/x", ran, methods=["GET", "HEAD"], dependencies=[Depends(limit)])
        web = TestClient(app)
        assert [web.get("/x").status_code, web.head("/x").status_code] == expected


def test_denial_is_a_problem_document_in_every_version():
    app = FastAPI(dependencies=[Depends(RateLimit(AsyncLimiter(), ONCE))])
    app.add_api_route("/x", ran)
    denied = [TestClient(app).get("/x") for _ in range(2)][1]
    assert (denied.status_code, denied.headers["content-type"]) == (429, "application/problem+json")
    assert denied.headers["retry-after"] == "3600"
    assert "ratelimit" in denied.headers


def test_concurrent_requests_are_counted_exactly():
    app = FastAPI(dependencies=[Depends(RateLimit(AsyncLimiter(), "20/hour fixed_window"))])
    app.add_api_route("/x", ran)

    async def ask(found):
        async def send(message):
            if message["type"] == "http.response.start":
                found.append(message["status"])

        async def receive():
            return {"type": "http.request"}

        scope = {"type": "http", "method": "GET", "path": "/x", "raw_path": b"/x", "query_string": b"", "headers": []}
        scope |= {"http_version": "1.1", "scheme": "http", "client": ("192.0.2.1", 1), "server": ("h", 80)}
        await app(scope, receive, send)

    async def main():
        found = []
        await asyncio.gather(*(ask(found) for _ in range(50)))
        return Counter(found)

    assert asyncio.run(main()) == {200: 20, 429: 30}


def test_version_is_supported():
    assert not is_older(fastapi.__version__, "0.100")


def one_format(_request, error):
    return PlainTextResponse(f"one format: {error.status_code}", error.status_code, error.headers)


@pytest.mark.parametrize("kind", [fastapi.HTTPException, HTTPException, DeniedError, 429])
@pytest.mark.parametrize("has_middleware", [True, False])
def test_handler_of_the_application_makes_the_response(kind, has_middleware):
    app = FastAPI(dependencies=[Depends(RateLimit(AsyncLimiter(), ONCE, cors_origins="*"))])
    app.add_exception_handler(kind, one_format)
    if has_middleware:
        app.add_middleware(RateLimitMiddleware)
    app.add_api_route("/x", ran)
    web = TestClient(app)
    answers = [web.get("/x", headers={"origin": "https://a.example"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    for denied in answers[1:]:
        assert denied.text == "one format: 429"
        assert denied.headers["access-control-allow-origin"] == "*"
        assert int(denied.headers["retry-after"]) > 0
        assert denied.headers.get_list("ratelimit") == [denied.headers["ratelimit"]]


def test_limit_with_a_response_of_its_own_does_not_ask_the_handler():
    own = RateLimit(AsyncLimiter(), ONCE, on_denied=lambda request, denial: PlainTextResponse("own", 429))
    app = FastAPI(dependencies=[Depends(own)])
    app.add_exception_handler(HTTPException, one_format)
    app.add_api_route("/x", ran)
    web = TestClient(app)
    assert [web.get("/x").text for _ in range(3)] == ['"ran"', "own", "own"]
    assert web.get("/unknown").text == "one format: 404"


def test_schema_of_openapi_lists_denials():
    limit = RateLimit(AsyncLimiter(), ONCE)
    app = FastAPI(dependencies=[Depends(limit)], responses=limit.responses)
    app.add_api_route("/x", ran)
    app.add_api_route("/y", ran, responses=RateLimit(AsyncLimiter(), ONCE, status=503).responses)
    paths = app.openapi()["paths"]
    denied = paths["/x"]["get"]["responses"]["429"]
    assert "application/problem+json" in denied["content"] and "Retry-After" in denied["headers"]
    assert "503" in paths["/y"]["get"]["responses"]
