"""Views that fail or are cancelled, and options that are asynchronous or raise."""

import asyncio
import textwrap
import threading

import anyio
import flask
import pytest
from polylimit import AsyncLimiter, Limiter
from polylimit.asgi import RateLimitMiddleware
from polylimit.flask import RateLimit, limit
from test_process import python

DJANGO = """
    import asyncio, django, logging
    from django.conf import settings
    from polylimit import Limiter
    logging.disable()
    limiter = Limiter(policies={"login": "3/day", "one": "1/day"})
    failed = lambda response: response.status_code == 401
    options = {"limiter": limiter, "policy": "login", "key": lambda request: request.path, "count": failed}
    settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a", POLYLIMIT=options)
    django.setup()
    from django.core.exceptions import PermissionDenied
    from django.core.handlers.asgi import ASGIHandler
    from django.http import Http404, HttpResponse
    from django.test import AsyncClient, Client, override_settings
    from django.urls import path
    from polylimit.django import limit
    client = Client(raise_request_exception=False)
    by_path = {"key": lambda request: request.path}
    def statuses(path):
        return [client.get(path).status_code for _ in range(5)]
"""


def in_django(program: str) -> str:
    return python(textwrap.dedent(DJANGO) + textwrap.dedent(program))


def test_django_view_that_raises_does_not_count():
    printed = in_django(
        """
        def raises(error):
            @limit(limiter, "login", count=failed, **by_path)
            def view(request):
                raise error
            return view
        @limit(limiter, "login", count=failed, **by_path)
        async def asynchronous(request):
            raise PermissionDenied
        @limit(limiter, "login", count=lambda response: response.status_code == 404, **by_path)
        def counts(request):
            raise Http404
        urlpatterns = [
            path("404", raises(Http404())), path("403", raises(PermissionDenied())), path("500", raises(ValueError())),
            path("asynchronous", asynchronous), path("counts", counts),
        ]
        print(*(statuses(f"/{one.pattern}") for one in urlpatterns))
        async def main():
            client = AsyncClient(raise_request_exception=False)
            print([(await client.get("/asynchronous")).status_code for _ in range(5)])
        asyncio.run(main())
        """
    )
    assert printed == (f"{[404] * 5} {[403] * 5} {[500] * 5} {[403] * 5} {[404] * 3 + [429] * 2}\n{[403] * 5}\n")


def test_django_client_that_disconnects_does_not_count():
    printed = in_django(
        """
        async def slow(request):
            await asyncio.sleep(60)
        @limit(limiter, "login", count=failed, **by_path)
        async def decorated(request):
            await asyncio.sleep(60)
        urlpatterns = [path("slow", slow), path("decorated", decorated)]
        async def leave(path, app):
            scope = {
                "type": "http", "method": "GET", "path": path, "root_path": "", "query_string": b"", "headers": [],
                "client": ("192.0.2.1", 1), "server": ("a", 80), "http_version": "1.1", "scheme": "http",
            }
            messages = [{"type": "http.request"}]
            async def receive():
                if messages:
                    return messages.pop()
                await asyncio.sleep(0.05)
                return {"type": "http.disconnect"}
            async def send(message):
                raise AssertionError
            await app(scope, receive, send)
            return limiter.peek(path, "login").remaining
        with override_settings(MIDDLEWARE=["polylimit.django.RateLimitMiddleware"]):
            print(asyncio.run(leave("/slow", ASGIHandler())))
        print(asyncio.run(leave("/decorated", ASGIHandler())))
        """
    )
    assert printed == "3\n3\n"


def test_django_on_denied_without_response_admits_no_request():
    printed = in_django(
        """
        @limit(limiter, "one", on_denied=lambda request, denial: None, **by_path)
        def view(request):
            return HttpResponse()
        @limit(limiter, "one", on_denied=lambda request, denial: None, **by_path)
        async def asynchronous(request):
            return HttpResponse()
        urlpatterns = [path("view", view), path("asynchronous", asynchronous)]
        print(statuses("/view"), statuses("/asynchronous"))
        """
    )
    assert printed == f"{[200] + [500] * 4} {[200] + [500] * 4}\n"


def test_django_blocking_view_accepts_asynchronous_functions():
    printed = in_django(
        """
        async def skip(request):
            return "skip" in request.GET
        async def key(request):
            return "one key"
        async def cost(request):
            return 2
        async def answer(request, denial):
            return HttpResponse(status=418)
        @limit(limiter, "login", skip=skip, key=key, cost=cost, on_denied=answer)
        def view(request):
            return HttpResponse()
        urlpatterns = [path("view", view)]
        print(statuses("/view?skip"), statuses("/view"))
        """
    )
    assert printed == f"{[200] * 5} {[200] + [418] * 4}\n"


@pytest.mark.filterwarnings("error")
def test_flask_accepts_asynchronous_skip():
    limiter = Limiter(policies={"one": "1/day"})
    app = flask.Flask(__name__)

    async def skip(request):
        return "skip" in request.args

    @app.route("/")
    @limit(limiter, "one", skip=skip)
    def view():
        return "view"

    client = app.test_client()
    assert [client.get(path).status_code for path in ("/?skip", "/?skip", "/", "/", "/?skip")] == [
        200,
        200,
        200,
        429,
        200,
    ]


def of_view(_app, view, **options):
    return limit(**options)(view)


def of_application(app, view, **options):
    RateLimit(app, **options)
    return view


def of_both(app, view, limiter, **options):
    RateLimit(app, limiter=limiter, policy="other")

    def unseen():
        return limit(limiter, **options)(view)()

    return unseen


@pytest.mark.parametrize("limited", [of_view, of_application, of_both])
@pytest.mark.parametrize("config", ["TESTING", "PROPAGATE_EXCEPTIONS", "DEBUG", None])
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_flask_view_that_raises_does_not_count(limited, config, error):
    limiter = Limiter(policies={"login": "5/day", "other": "5/day"})
    app = flask.Flask(__name__)
    app.logger.disabled = True
    if config is not None:
        app.config[config] = True
    statuses = []

    def count(response):
        statuses.append(response.status_code)
        return response.status_code == 401

    def view():
        if "raise" in flask.request.args:
            raise error
        return "view", int(flask.request.args["status"])

    options = {"limiter": limiter, "policy": "login", "key": lambda _request: "one", "count": count}
    app.add_url_rule("/", "view", limited(app, view, **options))
    # One client for all requests: its context may be torn down more than once.
    with app.test_client() as client:
        answered = [client.get("/", query_string={"status": status}).status_code for status in (401, 401, 200)]
        assert answered == [401, 401, 200]
        assert (limiter.peek("one", "login").remaining, statuses) == (3, [401, 401, 200])
        if config is None and error is ValueError:
            assert client.get("/?raise").status_code == 500
        else:
            with pytest.raises(error):
                client.get("/?raise")
    assert (limiter.peek("one", "login").remaining, statuses) == (3, [401, 401, 200, 500])


def test_flask_context_copy_does_not_end_the_request():
    limiter = Limiter(policies={"api": "5/day"})
    app = flask.Flask(__name__)
    statuses = []

    def count(response):
        statuses.append(response.status_code)
        return response.status_code == 200

    @app.get("/")
    @limit(limiter, "api", key=lambda _request: "one", count=count)
    def view():
        work = threading.Thread(target=flask.copy_current_request_context(lambda: flask.request.path))
        work.start()
        work.join()
        return "view"

    assert app.test_client().get("/").status_code == 200
    assert (limiter.peek("one", "api").remaining, statuses) == (4, [200])


def test_nested_flask_application_counts_its_own_response():
    limiter = Limiter(policies={"login": "5/day"})
    outer, inner = flask.Flask("outer"), flask.Flask("inner")
    statuses = []

    @outer.route("/")
    @limit(limiter, "login", count=lambda response: statuses.append(response.status_code))
    def view():
        flask.Response.from_app(inner.wsgi_app, flask.request.environ)
        assert statuses == []
        return "view"

    outer.test_client().get("/")
    assert statuses == [200]


def raises(_response):
    raise KeyError("count")


def test_flask_count_that_raises_does_not_keep_units_of_others():
    limiter = Limiter(policies={"a": "3/day", "b": "3/day", "c": "3/day"})
    app = flask.Flask(__name__)
    app.testing = True

    @app.route("/")
    @limit(limiter, "a", key=lambda _request: "one", count=lambda _response: False)
    @limit(limiter, "b", key=lambda _request: "one", count=raises)
    @limit(limiter, "c", key=lambda _request: "one", count=lambda _response: False)
    def view():
        return "view"

    with pytest.raises(KeyError, match="count"):
        app.test_client().get("/")
    # The `count` of the second raised, so its unit stays spent.
    assert [limiter.peek("one", name).remaining for name in "abc"] == [3, 2, 3]


def test_asgi_count_that_raises_does_not_keep_units_of_others():
    async def responds(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def main():
        limiter = AsyncLimiter(policies={"a": "3/day", "b": "3/day", "c": "3/day"})
        app = responds
        for name, count in (("c", lambda _response: False), ("b", raises), ("a", lambda _response: False)):
            app = RateLimitMiddleware(app, limiter=limiter, policy=name, key=lambda _scope: "one", count=count)
        with pytest.raises(KeyError, match="count"):
            await app({"type": "http", "headers": []}, None, None)
        assert [(await limiter.peek("one", name)).remaining for name in "abc"] == [3, 2, 3]

    asyncio.run(main())


def test_django_count_that_raises_does_not_keep_units_of_others():
    printed = in_django(
        """
        def raises(response):
            raise KeyError("count")
        def view(request):
            return HttpResponse()
        async def asynchronous(request):
            return HttpResponse()
        def limited(view):
            view = limit(limiter, "login", count=failed, **by_path)(view)
            view = limit(limiter, "one", count=raises, **by_path)(view)
            return limit(limiter, "5/day", count=failed, **by_path)(view)
        urlpatterns = [path("view", limited(view)), path("asynchronous", limited(asynchronous))]
        for name in ("/view", "/asynchronous"):
            status = client.get(name).status_code
            print(status, [limiter.peek(name, one).remaining for one in ("5/day", "one", "login")])
        """
    )
    assert printed == "500 [5, 0, 3]\n" * 2


def test_request_cancelled_at_every_await_is_refunded(redis, key):
    async def waits(_scope, _receive, _send):
        await anyio.sleep(60)

    async def main():
        async with AsyncLimiter(redis, dict.fromkeys("abc", "10/day")) as limiter:
            await limiter.ready(10)
            middleware = RateLimitMiddleware(
                waits,
                limiter=limiter,
                policy=["a", "b", "c"],
                key=lambda _scope: key,
                count=lambda response: response.status_code == 401,
            )
            async with anyio.create_task_group() as group:
                group.start_soon(middleware, {"type": "http", "headers": []}, None, None)
                while (await limiter.peek(key, "a")).remaining == 10:
                    await anyio.sleep(0.01)
                await anyio.sleep(0.1)
                group.cancel_scope.cancel()
            while [(await limiter.peek(key, name)).remaining for name in "abc"] != [10, 10, 10]:
                await anyio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 10))
