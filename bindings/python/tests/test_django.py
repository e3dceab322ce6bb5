"""Django: every way to a view counts, whatever decorates it and wherever it is included."""

import textwrap

import pytest
from test_process import python

SITE = """
    import asyncio, logging
    import django
    from django.conf import settings
    from polylimit import Limiter
    logging.disable()
    limiter = Limiter(policies={"site": "2/day fixed_window", "own": "4/day fixed_window"})
    options = {"limiter": limiter, "policy": "site"}
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a", POLYLIMIT=options,
        MIDDLEWARE=["polylimit.django.RateLimitMiddleware"],
    )
    django.setup()
    from django.core.exceptions import PermissionDenied
    from django.http import Http404, HttpResponse
    from django.test import AsyncClient, Client, override_settings
    from django.urls import include, path, re_path
    from django.utils.decorators import method_decorator
    from django.views import View
    from polylimit.django import exempt, limit
    class Clients:
        def __getattr__(self, name):
            # A client keeps its middlewares.
            return getattr(Client(raise_request_exception=False), name)
    client = Clients()
    def counted(path, method="GET", times=6, **arguments):
        found = [client.generic(method, path, **arguments).status_code for _ in range(times)]
        return [found.count(status) for status in (200, 429)]
    def counted_async(path, method="GET"):
        async def main():
            client = AsyncClient(raise_request_exception=False)
            return [(await client.generic(method, path)).status_code for _ in range(6)]
        found = asyncio.run(main())
        return [found.count(status) for status in (200, 429)]
    def without_site():
        return override_settings(MIDDLEWARE=[])
"""


def site(program):
    return python(textwrap.dedent(SITE) + textwrap.dedent(program)).splitlines()


def test_methods_of_a_class_can_be_limited_directly_and_by_method_decorator():
    printed = site(
        """
        class Direct(View):
            @limit(limiter, "3/day fixed_window")
            def get(self, request, number): return HttpResponse(str(number))
            @limit(limiter, "3/day fixed_window")
            def post(self, request, number): return HttpResponse(str(number))
        class Decorated(View):
            @method_decorator(limit(limiter, "3/day fixed_window"))
            def get(self, request): return HttpResponse()
        class Several(View):
            @method_decorator([limit(limiter, "3/day fixed_window"), limit(limiter, "5/day fixed_window")])
            def get(self, request): return HttpResponse()
        class Asynchronous(View):
            @limit(limiter, "3/day fixed_window")
            async def get(self, request): return HttpResponse()
        @method_decorator(limit(limiter, "3/day fixed_window"), name="dispatch")
        class AsynchronousDispatch(View):
            async def get(self, request): return HttpResponse()
        @limit(limiter, "3/day fixed_window")
        class OfClass(View):
            def get(self, request): return HttpResponse()
        @limit(limiter, "3/day fixed_window")
        class AsynchronousClass(View):
            async def get(self, request): return HttpResponse()
        classes = [Decorated, Several, Asynchronous, AsynchronousDispatch, OfClass, AsynchronousClass]
        urlpatterns = [path("direct/<int:number>", Direct.as_view())]
        urlpatterns += [path(owner.__name__, owner.as_view()) for owner in classes]
        with without_site():
            print(counted("/direct/1"), counted("/direct/2", "HEAD", 1), counted("/direct/1", "POST"))
            for owner in classes:
                print(counted(f"/{owner.__name__}"), counted_async(f"/{owner.__name__}"))
        """
    )
    assert printed == ["[3, 3] [0, 1] [3, 3]"] + ["[3, 3] [0, 6]"] * 6


def test_methods_of_a_class_are_exempt_and_override():
    printed = site(
        """
        class Direct(View):
            @limit(limiter, "own", override=True)
            def get(self, request): return HttpResponse()
            @exempt
            def post(self, request): return HttpResponse()
            def put(self, request): return HttpResponse()
        class Decorated(View):
            @method_decorator(limit(limiter, "4/day fixed_window", override=True))
            @method_decorator(limit(limiter, "5/day fixed_window"))
            def get(self, request): return HttpResponse()
            @method_decorator(exempt)
            def post(self, request): return HttpResponse()
        @exempt
        class OfClass(View):
            def get(self, request): return HttpResponse()
        @method_decorator([exempt, limit(limiter, "5/day fixed_window")], name="dispatch")
        class Several(View):
            def get(self, request): return HttpResponse()
        urlpatterns = [path(owner.__name__, owner.as_view()) for owner in (Direct, Decorated, OfClass, Several)]
        print(counted("/Direct"), counted("/Direct", "HEAD"), counted("/Direct", "POST"))
        print(counted("/Decorated"), counted("/Decorated", "POST"))
        print(counted("/OfClass"), counted("/Several"))
        # A method that the class does not have counts, too.
        print([client.generic(method, "/Direct").status_code for method in ("DELETE", "PUT", "PUT", "BREW")])
        """
    )
    assert printed == ["[4, 2] [0, 6] [6, 0]", "[4, 2] [6, 0]", "[6, 0] [5, 1]", "[405, 200, 429, 429]"]


def test_what_is_no_view_is_refused():
    printed = site(
        """
        @limit(limiter, "own")
        def no_request(number): return HttpResponse()
        def view(request): return no_request(1)
        urlpatterns = [path("", view)]
        for given in (dict, "view"):
            try:
                limit(limiter, "own")(given)
            except TypeError as error:
                print(error)
        try:
            Client().get("/")
        except TypeError as error:
            print(error)
        """
    )
    allowed = "allowed is a function, a class-based view or a method of one"
    assert printed == [
        f"the decorated view is dict: {allowed}",
        f"the decorated view is an object of type str: {allowed}",
        (
            "no_request is limited and was called without a request: limits decorate functions whose first "
            "argument is the request, class-based views and methods of them"
        ),
    ]


NAMES = """
    def view(request, **_): return HttpResponse()
    def other(request, **_): return HttpResponse()
    def limited(view): return limit(limiter, "1/day fixed_window")(view)
    twice = limited(view)
    users = [path("<int:id>", limited(view), name="detail"), path("x", limited(other), name="detail")]
    orders = [path("<int:id>", limited(view), name="detail")]
    again = ([path("<int:id>", limited(view), name="detail")], "again")
    urlpatterns = [
        path("users/", include(users)), path("orders/", include(orders)),
        path("v1/", include(again, namespace="v1")), path("v2/", include(again, namespace="v2")),
        path("twice/<int:id>", twice, name="first"), re_path("^also/(?P<id>[0-9]+)$", twice, name="second"),
        path("unnamed", limited(other)), path("unnamed/too", limited(other)),
    ]
    paths = ["/users/1", "/users/x", "/orders/1", "/v1/1", "/v2/1", "/twice/1", "/unnamed", "/unnamed/too"]
"""


def test_views_have_budgets_of_their_own_which_are_the_same_in_every_process():
    program = NAMES + (
        """
    with without_site():
        print([client.get(path).status_code for path in paths], client.get("/also/7").status_code)
        print({client.get(path).status_code for path in paths})
    from django.urls import clear_url_caches
    # Another process meets them in another order.
    clear_url_caches()
    with without_site():
        print({client.get(path).status_code for path in reversed(paths)})
    """
    )
    assert site(program) == [f"{[200] * 8} 429", "{429}", "{429}"]


def test_route_has_all_prefixes():
    printed = site(
        """
        from polylimit.django import RateLimitMiddleware
        document = '''
        polylimit = 1
        [policies.by_route]
        quotas = "1/day fixed_window"
        [[rules]]
        match = { route = "*" }
        apply = [{ policy = "by_route", key = "{route}" }]
        '''
        by_document = Limiter("memory:", document=document)
        def view(request, **_): return HttpResponse()
        urlpatterns = [
            path("", view), path("a/<int:number>", view), path("b/<path:rest>", view), path("plain/<word>/", view),
            path("v1/", include([path("users/<int:id>", view), re_path(r"^old/(?P<id>[0-9]+)/$", view)])),
                re_path(r"^top/(?P<id>[0-9]+)$", view),
        ]
        routes = {
            "/": "/", "/a/1": "/a/{number}", "/b/x/y": "/b/{*rest}", "/plain/x/": "/plain/{word}/",
            "/v1/users/7": "/v1/users/{id}", "/v1/old/7/": "/v1/old/(?P<id>[0-9]+)/$",
                "/top/7": "/top/(?P<id>[0-9]+)$",
        }
        with override_settings(POLYLIMIT={"limiter": by_document}):
            for prefix in ("", "/site"):
                for path, route in routes.items():
                    status = client.get(path, SCRIPT_NAME=prefix).status_code
                    print(status, by_document.peek(prefix + route, "by_route").remaining)
            print([client.get("/unknown").status_code for _ in range(3)])
            async def main():
                print((await AsyncClient().get("/v1/users/8")).status_code)
            asyncio.run(main())
        """
    )
    assert printed == ["200 0"] * 14 + ["[404, 404, 404]", "429"]


def test_path_rule_sees_the_path_of_the_router():
    printed = site(
        """
        document = '''
        polylimit = 1
        [policies.login]
        quotas = "2/day fixed_window"
        [[rules]]
        match = { path = "/v1/login" }
        apply = [{ policy = "login", key = "all" }]
        '''
        by_document = Limiter("memory:", document=document)
        urlpatterns = [path("v1/login", lambda request: HttpResponse())]
        line = {"RAW_URI": "/v1%2Flogin", "REQUEST_URI": "/v1%2Flogin"}
        async def asgi():
            from django.core.handlers.asgi import ASGIHandler
            sent = []
            scope = {
                "type": "http", "method": "GET", "path": "/v1/login", "raw_path": b"/v1%2Flogin", "root_path": "",
                "query_string": b"", "headers": [], "client": ("127.0.0.1", 1), "server": ("a", 80),
                "http_version": "1.1", "scheme": "http",
            }
            messages = [{"type": "http.request"}]
            async def receive():
                if messages:
                    return messages.pop()
                await asyncio.sleep(60)
            async def send(message):
                sent.append(message)
            await ASGIHandler()(scope, receive, send)
            return sent[0]["status"]
        with override_settings(POLYLIMIT={"limiter": by_document}):
            print(client.get("/v1/login", **line).status_code, asyncio.run(asgi()))
            print(client.get("/v1/login", **line).status_code, asyncio.run(asgi()))
        """
    )
    assert printed == ["200 200", "429 429"]


def test_denial_of_one_method_spends_nothing_of_the_site():
    printed = site(
        """
        class Own(View):
            @limit(limiter, "1/day fixed_window")
            def get(self, request): return HttpResponse()
            @limit(limiter, "1/day fixed_window", count=lambda response: response.status_code == 403)
            def post(self, request): raise PermissionDenied
        urlpatterns = [path("", Own.as_view())]
        print([client.get("/").status_code for _ in range(3)], limiter.peek("127.0.0.1", "site").remaining)
        with without_site():
            print([client.post("/").status_code for _ in range(3)])
        """
    )
    assert printed == ["[200, 429, 429] 1", "[403, 429, 429]"]


def test_head_counts_with_get():
    printed = site(
        """
        document = '''
        polylimit = 1
        [policies.p]
        quotas = "2/day fixed_window"
        [[rules]]
        match = { method = "GET", path = "/view" }
        apply = [{ policy = "p", key = "all" }]
        '''
        class Own(View):
            def get(self, request): return HttpResponse()
        one = limit(limiter, "1/day fixed_window", methods=["get"])(Own.as_view())
        urlpatterns = [path("view", Own.as_view()), path("one", one)]
        for given in ({"policy": "2/day"}, {"policy": "site", "methods": ["get"]}, {}):
            made = Limiter(policies={"site": "2/day"}) if given else Limiter(document=document)
            with override_settings(POLYLIMIT={"limiter": made, **given}):
                print(counted("/view", times=1), counted("/view", "HEAD", 2), counted("/view", times=1))
        with without_site():
            print(counted("/one", "HEAD"), counted("/one"))
        """
    )
    assert printed == ["[1, 0] [1, 1] [0, 1]"] * 3 + ["[1, 5] [0, 6]"]


CORS = """
    view = lambda request: HttpResponse()
    urlpatterns = [path("", view), path("own", limit(limiter, "own")(view))]
    preflight = {"HTTP_ORIGIN": "https://app.example", "HTTP_ACCESS_CONTROL_REQUEST_METHOD": "POST"}
    origin = {"HTTP_ORIGIN": "https://app.example"}
    by_polylimit = ["polylimit.django.RateLimitMiddleware"]
    by_cors = ["corsheaders.middleware.CorsMiddleware"]
    def fields(response):
        exposed = "ratelimit" in response.headers.get("access-control-expose-headers", "").lower()
        varies = {name.strip() for name in response.headers["vary"].lower().split(",")}
        assert varies == ({"accept", "origin"} if response.has_header("access-control-allow-origin") else {"accept"})
        return response.status_code, response.headers.get("access-control-allow-origin"), exposed
"""


def test_preflights_do_not_count_and_denials_have_the_fields_of_cors():
    pytest.importorskip("corsheaders", reason="django-cors-headers is not installed")
    printed = site(
        CORS
        + """
    for middleware in (by_cors + by_polylimit, by_polylimit + by_cors, by_polylimit):
        for more in ({}, {"cors_origins": ["https://app.example"]}):
            made = {"limiter": Limiter(policies={"site": "2/day"}), "policy": "site", **more}
            with override_settings(MIDDLEWARE=middleware, POLYLIMIT=made, CORS_ALLOWED_ORIGINS=[origin["HTTP_ORIGIN"]]):
                print(counted("/", "OPTIONS", **preflight), counted("/", "POST", times=3, **origin), end=" ")
                print(counted("/", "OPTIONS", times=2, **preflight), fields(client.post("/", **origin)))
    made = {**options, "limiter": Limiter(policies={"site": "2/day"}), "count_preflights": True}
    with override_settings(POLYLIMIT=made):
        print(counted("/", "OPTIONS", **preflight))
    with without_site():
        print(counted("/own", "OPTIONS", **preflight))
    """
    )
    plain, with_fields, unreadable = (
        f"[6, 0] [2, 1] [2, 0] (429, {fields})"
        for fields in ("'https://app.example', False", "'https://app.example', True", "None, False")
    )
    assert printed == [
        *(plain, with_fields, unreadable, with_fields, unreadable, with_fields),
        "[2, 4]",
        "[4, 2]",
    ]


def test_empty_key_is_missing():
    printed = site(
        """
        from polylimit import keys
        view = lambda request: HttpResponse()
        urlpatterns = [path("", view)]
        for key in (lambda request: "", keys.header("x-key"), keys.cookie("key")):
            with override_settings(POLYLIMIT={**options, "key": key, "missing_key": "refuse"}):
                print(client.get("/", HTTP_X_KEY="", HTTP_COOKIE="key=").status_code)
        """
    )
    assert printed == ["400"] * 3


def test_old_version_is_refused():
    printed = python(
        """
        import importlib.metadata
        importlib.metadata.version = lambda _package: "3.2.25"
        try:
            import polylimit.django
        except ImportError as error:
            print(error)
        """
    )
    assert printed == (
        "Django 3.2.25 is installed, allowed is 4.2 or newer: upgrade it, such as by "
        'pip install --upgrade "polylimit[django]"\n'
    )
