"""Options that the cases of `guard.json` do not reach: overrides, keys of the frameworks, limits of a request."""

import os
from pathlib import Path

import flask
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from flask_login import LoginManager, UserMixin
from polylimit import AsyncLimiter, Limiter, StoreFailedError, keys
from polylimit import fastapi as of_fastapi
from polylimit import flask as of_flask
from polylimit.asgi import RateLimitMiddleware
from test_views import in_django

POLICIES = {"api": "2/day", "write": "1/day"}
#: The name of quotas on the route `/items/{item}`.
OF_ITEM = Limiter().policy_for("1/day", "GET /items/{item}").name


def flask_app(view, *, application=None, rule="/", methods=("GET", "POST")):
    """A client of an application with one view and, by default, the limit `api` on all of it."""
    limiter = Limiter(policies=POLICIES)
    app = flask.Flask(__name__)
    app.testing = True
    of_flask.RateLimit(app, limiter=limiter, **(application or {"policy": "api"}))
    app.add_url_rule(rule, "view", view(limiter), methods=list(methods))
    return app, limiter


def hello(**_arguments):
    return "hello"


def statuses(client, methods, path="/"):
    return [client.open(path, method=method).status_code for method in methods]


def test_flask_view_overrides_limit_of_application():
    app, limiter = flask_app(lambda limiter: of_flask.limit(limiter, "write", override=True)(hello))
    assert statuses(app.test_client(), ["GET", "GET"]) == [200, 429]
    assert limiter.peek("127.0.0.1", "api").remaining == 2


def test_flask_override_holds_only_for_methods_of_the_limit():
    app, limiter = flask_app(lambda limiter: of_flask.limit(limiter, "write", override=True, methods=["POST"])(hello))
    assert statuses(app.test_client(), ["POST", "POST", "GET", "GET", "GET"]) == [200, 429, 200, 200, 429]
    assert limiter.peek("127.0.0.1", "api").remaining == 0


def test_flask_view_is_exempt_from_limit_of_application():
    app, limiter = flask_app(lambda _limiter: of_flask.exempt(hello))
    response = app.test_client().get("/")
    assert (response.status_code, "ratelimit" in response.headers) == (200, False)
    assert limiter.peek("127.0.0.1", "api").remaining == 2


def test_flask_view_has_limit_for_each_method():
    app, _ = flask_app(
        lambda limiter: of_flask.limit(limiter, "5/day", methods=["GET"])(
            of_flask.limit(limiter, "write", methods="POST")(hello)
        ),
        application={"policy": "100/day"},
    )
    assert statuses(app.test_client(), ["GET"] * 6 + ["POST"] * 2) == [200] * 5 + [429, 200, 429]


@pytest.mark.parametrize("has_login_manager", [True, False])
def test_flask_user_is_of_flask_login_or_of_server(has_login_manager):
    app, limiter = flask_app(lambda _limiter: hello, application={"policy": "api", "key": keys.user()})
    if has_login_manager:

        @LoginManager(app).request_loader
        def load_user(request):
            user = UserMixin()
            user.id = request.headers["x-user"]
            return user

    client = app.test_client()
    client.get("/", headers={"x-user": "ann"}, environ_base={"REMOTE_USER": "ann"})
    assert limiter.peek("user:ann", "api").remaining == 1


def test_flask_key_has_parts_of_path_and_cookie():
    key = keys.join(keys.path("tenant"), keys.cookie("session"), "address")
    app, limiter = flask_app(lambda limiter: of_flask.limit(limiter, "write", key=key)(hello), rule="/tenants/<tenant>")
    client = app.test_client()
    client.set_cookie("session", "abc")
    assert statuses(client, ["GET"], "/tenants/a") == [200]
    assert limiter.peek("path:tenant:a|cookie:session:abc|127.0.0.1", "write").remaining == 0


def test_request_without_key_counts_by_address_behind_proxies():
    rules = keys.client_address(["loopback"], "x-forwarded-for")
    app, limiter = flask_app(
        lambda _limiter: hello,
        application={"policy": "api", "key": keys.header("x-api-key"), "client_address": rules},
    )
    app.test_client().get("/", headers={"x-forwarded-for": "203.0.113.7"})
    assert limiter.peek("203.0.113.7", "api").remaining == 1


def test_flask_view_reads_limits_of_request():
    def view(**_arguments):
        ((policy, decision),) = of_flask.request_limits().outcomes
        return f"{policy.name} {decision.remaining}"

    app, _ = flask_app(lambda _limiter: view)
    assert app.test_client().get("/").text == "api 1"


def fastapi_app(*, has_middleware, **default):
    """An application with the limit `api`, two routers in it, and routes that override its limit or are exempt."""
    limiter = AsyncLimiter(policies=POLICIES)

    def limit(policy, **options):
        return Depends(of_fastapi.RateLimit(limiter, policy, **options))

    async def view():
        return "view"

    exempt = Depends(of_fastapi.exempt)
    app = FastAPI(dependencies=[limit("api", **default)])
    if has_middleware:
        app.add_middleware(of_fastapi.RateLimitMiddleware)
    own = limit("write", override=True)
    posts = limit("write", override=True, methods=["POST"])
    router = APIRouter(prefix="/part", dependencies=[limit("5/day", scope="part")])
    for routes in (app, router):
        routes.get("/default")(view)
        routes.get("/own", dependencies=[own])(view)
        routes.api_route("/posts", methods=["GET", "POST"], dependencies=[posts])(view)
        routes.get("/exempt", dependencies=[exempt])(view)
        routes.get("/exempt/but", dependencies=[exempt, limit("write")])(view)
        routes.get("/both", dependencies=[limit("write")])(view)

        @routes.get("/signature")
        async def signature(_own: None = own):
            return "signature"

    app.include_router(router, prefix="/v1")
    return TestClient(app, client=("127.0.0.1", 1)), limiter.blocking


@pytest.mark.parametrize("part", ["", "/v1/part"])
@pytest.mark.parametrize("has_middleware", [True, False])
def test_fastapi_route_overrides_limits_of_application_and_router_or_is_exempt(has_middleware, part):
    def left(path, *methods):
        client, limiter = fastapi_app(has_middleware=has_middleware)
        answered = [client.request(method, part + path).status_code for method in methods or ["GET", "GET"]]
        names = [*POLICIES, limiter.policy_for("5/day", "part").name]
        return answered, [limiter.peek("127.0.0.1", name).remaining for name in names]

    of_part = [5, 4, 3] if part else [5, 5, 5]
    assert left("/default") == ([200, 200], [0, 1, of_part[2]])
    for overriding in ("/own", "/signature"):
        assert left(overriding) == ([200, 429], [2, 0, 5])
    assert left("/posts", "POST", "POST", "GET") == ([200, 429, 200], [1, 0, of_part[1]])
    assert left("/exempt") == ([200, 200], [2, 1, 5])
    assert left("/exempt/but") == ([200, 429], [2, 0, 5])
    assert left("/both") == ([200, 429], [1, 0, of_part[1]])


def test_fastapi_limit_of_application_has_one_budget_in_a_scope():
    app = FastAPI(dependencies=[Depends(of_fastapi.RateLimit(AsyncLimiter(), "2/day", scope="all"))])
    for path in ("/one", "/two"):
        app.get(path)(lambda: "view")
    client = TestClient(app, client=("127.0.0.1", 1))
    assert [client.get(path).status_code for path in ("/one", "/two", "/one")] == [200, 200, 429]


def test_fastapi_route_reads_limits_of_request_and_has_policies_of_its_function():
    limiter = AsyncLimiter(policies=POLICIES)
    app = FastAPI()

    async def plan(request: Request):
        return {"free": "1/day", "none": None, "both": ["api", "5/day"]}[request.headers["x-plan"]]

    @app.get("/items/{item}", dependencies=[Depends(of_fastapi.RateLimit(limiter, plan, key="path:item"))])
    async def show(item, request: Request):
        return [policy.name for policy, _ in of_fastapi.request_limits(request).outcomes]

    client = TestClient(app)

    def get(item, plan):
        response = client.get(f"/items/{item}", headers={"x-plan": plan})
        return response.status_code, response.json() if response.status_code == 200 else None

    assert [get("a", "free"), get("a", "free")[0]] == [(200, [OF_ITEM]), 429]
    assert [get("a", "none") for _ in range(3)] == [(200, [])] * 3
    assert get("b", "both") == (200, ["api", OF_ITEM.replace("1", "5", 1)])
    assert limiter.blocking.peek("path:item:b", "api").remaining == 1


@pytest.mark.parametrize(("verdict", "status"), [(True, 200), (False, 418), (None, 418)])
def test_on_outage_hears_decision_without_store_and_decides(verdict, status):
    heard = []
    # Nothing listens on port 1, and the policy denies.
    limiter = Limiter("redis://127.0.0.1:1?doctor_after=0", POLICIES, outage={"api": "deny"})
    app = flask.Flask(__name__)
    app.testing = True

    def on_outage(request, outage):
        heard.append((request.path, outage.error, [policy.name for policy, _ in outage.outcomes]))
        return verdict

    view = of_flask.limit(
        limiter,
        "api",
        on_outage=on_outage,
        on_denied=lambda _request, denial: (str(denial.problem.status), 418),
    )(hello)
    app.add_url_rule("/", "view", view)
    response = app.test_client().get("/")
    assert (response.status_code, heard) == (status, [("/", None, ["api"])])
    if status == 418:
        assert response.text == "503"


def test_on_outage_that_returns_response_is_refused():
    limiter = Limiter("redis://127.0.0.1:1?doctor_after=0", POLICIES)
    app = flask.Flask(__name__)
    app.testing = True
    app.add_url_rule("/", "view", of_flask.limit(limiter, "api", on_outage=lambda *_: "response")(hello))
    with pytest.raises(TypeError, match=r"^on_outage returned a str: allowed are True, False and None$"):
        app.test_client().get("/")


def test_on_outage_hears_error_of_store_that_cannot_decide():
    name = f"options-{os.getpid()}"
    path = Path(f"/dev/shm/polylimit-{os.getuid()}-{name}")
    path.touch()
    # The store refuses a file that other users may read.
    path.chmod(0o640)
    heard = []

    def on_outage(_request, outage):
        heard.append(outage)
        return True

    try:
        app = flask.Flask(__name__)
        limiter = Limiter(f"local:{name}", POLICIES)
        app.add_url_rule("/", "view", of_flask.limit(limiter, "api", on_outage=on_outage)(hello))
        assert app.test_client().get("/").status_code == 200
    finally:
        path.unlink()
    assert isinstance(heard[0].error, StoreFailedError)
    assert heard[0].outcomes == []


def test_asgi_key_has_user_and_cookie():
    limiter = AsyncLimiter(policies=POLICIES)

    class User:
        is_authenticated = True
        identity = "ann"

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    limited = RateLimitMiddleware(app, limiter=limiter, policy="api", key=["user", "cookie:session"])

    async def with_user(scope, receive, send):
        scope["user"] = User()
        await limited(scope, receive, send)

    TestClient(with_user, cookies={"theme": "dark", "session": "abc"}).get("/")
    assert limiter.blocking.peek("user:ann|cookie:session:abc", "api").remaining == 1


def test_django_view_overrides_limit_of_site_or_is_exempt():
    printed = in_django(
        """
        from polylimit.django import exempt, request_limits
        def view(request, **arguments):
            return HttpResponse(str([policy.name for policy, _ in request_limits(request).outcomes]))
        urlpatterns = [
            path("own", limit(limiter, "one", override=True, **by_path)(view)),
            path("exempt", exempt(view)),
            path("parts/<str:part>", limit(limiter, "one", key=["path:part", "user"], missing_key="refuse")(view)),
            path("both", limit(limiter, "one", key=lambda request: "both")(view)),
        ]
        options = {**options, "count": None}
        with override_settings(MIDDLEWARE=["polylimit.django.RateLimitMiddleware"], POLYLIMIT=options):
            for name in ("own", "exempt", "both"):
                print(client.get("/" + name).content.decode(), statuses("/" + name)[-1])
        class User:
            is_authenticated = True
            pk = 42
        class Login:
            def __init__(self, respond):
                self.respond = respond
            def __call__(self, request):
                if "login" in request.GET:
                    request.user = User()
                return self.respond(request)
        with override_settings(MIDDLEWARE=["__main__.Login"]):
            client = Client()
            print(client.get("/parts/a").status_code, client.get("/parts/a?login").status_code)
            print(limiter.peek("path:part:a|user:42", "one").remaining)
        """
    )
    assert printed.splitlines() == [
        "['one'] 429",
        "[] 200",
        "['login', 'one'] 429",
        "400 200",
        "0",
    ]
