"""Django REST framework: users that a view authenticates, exceptions that it answers, and throttle classes."""

import textwrap

from test_process import python

SITE = """
    import asyncio, logging, time
    import django
    from django.conf import settings
    from polylimit import Limiter, keys
    logging.disable()
    limiter = Limiter(policies={"site": "2/day fixed_window", "own": "4/day fixed_window"})
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a", USE_TZ=True, MIDDLEWARE=[],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "rest_framework",
                        "rest_framework.authtoken"],
        POLYLIMIT={"limiter": limiter, "policy": "site", "key": "user"},
        REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": {
            "anon": "2/day", "user": "3/day; 100/minute", "uploads": "1/day", "none": None, "named": "own"}},
    )
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client, override_settings
    from django.urls import include, path
    from django.utils.decorators import method_decorator
    from rest_framework.authentication import BaseAuthentication, TokenAuthentication
    from rest_framework.authtoken.models import Token
    from rest_framework.decorators import action, api_view, authentication_classes, throttle_classes
    from rest_framework.exceptions import AuthenticationFailed, NotFound
    from rest_framework.permissions import IsAuthenticated
    from rest_framework.response import Response
    from rest_framework.routers import DefaultRouter
    from rest_framework.views import APIView
    from rest_framework.viewsets import ViewSet
    from polylimit.django import exempt, limit
    from polylimit.drf import AnonRateThrottle, RateThrottle, ScopedRateThrottle, UserRateThrottle
    call_command("migrate", verbosity=0)
    tokens = {name: Token.objects.create(user=User.objects.create_user(name)).key for name in ("ann", "bob")}
    attempts = []
    class Counting(TokenAuthentication):
        def authenticate(self, request):
            attempts.append(request.path)
            return super().authenticate(request)
    def ask(path, user=None, method="GET"):
        headers = {} if user is None else {"HTTP_AUTHORIZATION": f"Token {tokens.get(user, user)}"}
        # A client keeps its middlewares.
        return Client(raise_request_exception=False).generic(method, path, **headers)
    def statuses(path, *users, method="GET"):
        return [ask(path, user, method).status_code for user in users]
    of_site = override_settings(MIDDLEWARE=["polylimit.django.RateLimitMiddleware"])
"""


def site(program):
    return python(textwrap.dedent(SITE) + textwrap.dedent(program)).splitlines()


def test_failed_logins_count_wherever_the_limit_is():
    printed = site(
        """
        failed = limit(limiter, "3/day fixed_window", count=lambda response: response.status_code == 401)
        class Base(APIView):
            authentication_classes = [Counting]
        def refuse(request):
            if "right" in request.GET:
                return Response()
            raise AuthenticationFailed
        class OnMethod(Base):
            @failed
            def get(self, request): return refuse(request)
        class ByMethodDecorator(Base):
            @method_decorator(failed)
            def get(self, request): return refuse(request)
        @method_decorator(failed, name="dispatch")
        class OnDispatch(Base):
            def get(self, request): return refuse(request)
        @failed
        class OnClass(Base):
            def get(self, request): return refuse(request)
        @failed
        @api_view(["GET"])
        @authentication_classes([Counting])
        def above(request): return refuse(request)
        @api_view(["GET"])
        @authentication_classes([Counting])
        @failed
        def below(request): return refuse(request)
        class OfSet(ViewSet):
            authentication_classes = [Counting]
            @failed
            def list(self, request): return refuse(request)
        # No user is authenticated before the method is called.
        class NotPermitted(Base):
            permission_classes = [IsAuthenticated]
            def get(self, request): return Response()
        views = [view.as_view() for view in (OnMethod, ByMethodDecorator, OnDispatch, OnClass)]
        views += [failed(OnMethod.as_view()), above, below, OfSet.as_view({"get": "list"})]
        views += [failed(NotPermitted.as_view())]
        urlpatterns = [path(str(number), view) for number, view in enumerate(views)]
        for number in range(len(views)):
            right = statuses(f"/{number}?right", *[None] * 5) if number != 8 else [200] * 5
            print(number, right == [200] * 5, statuses(f"/{number}", *[None] * 5))
        print(ask("/0").headers["ratelimit"].split(";")[1])
        """
    )
    expected = [f"{number} True {[401] * 3 + [429] * 2}" for number in range(9)]
    assert printed == [*expected, "r=0"]


def test_exception_without_a_response_and_one_of_django_count_as_what_they_are():
    printed = site(
        """
        counted = {}
        def count(status):
            return limit(limiter, "2/day fixed_window", count=lambda response: response.status_code == status)
        class Fails(APIView):
            @count(500)
            def get(self, request): raise ValueError
            @count(404)
            def post(self, request): raise NotFound
        urlpatterns = [path("", Fails.as_view())]
        print(statuses("/", *[None] * 4), statuses("/", *[None] * 4, method="POST"))
        """
    )
    assert printed == [f"{[500] * 2 + [429] * 2} {[404] * 2 + [429] * 2}"]


def test_user_is_the_one_that_the_view_authenticates_once():
    printed = site(
        """
        by_user = limit(limiter, "2/day fixed_window", key=keys.user())
        class Base(APIView):
            authentication_classes = [Counting]
        def name(request): return Response(f"{request.user.username} {type(request.auth).__name__}")
        class OnMethod(Base):
            @by_user
            def get(self, request): return name(request)
        @method_decorator(by_user, name="dispatch")
        class OnDispatch(Base):
            def get(self, request): return name(request)
        @by_user
        @api_view(["GET"])
        @authentication_classes([Counting])
        def above(request): return name(request)
        class OfSet(ViewSet):
            authentication_classes = [Counting]
            def list(self, request): return Response(f"{request.user.username} Token {self.action}"[:9])
        class Plain(Base):
            def get(self, request): return name(request)
        views = [OnMethod.as_view(), OnDispatch.as_view(), above, by_user(OfSet.as_view({"get": "list"}))]
        views += [by_user(Plain.as_view())]
        urlpatterns = [path(str(number), view) for number, view in enumerate(views)]
        urlpatterns += [path("site", Plain.as_view())]
        users = ["ann", "ann", "ann", "bob", "bob", "bob"]
        for number in range(len(views)):
            attempts.clear()
            print(statuses(f"/{number}", *users), len(attempts))
        attempts.clear()
        with of_site:
            print(statuses("/site", *users), len(attempts))
            # A wrong token is answered by the view, and counts by the address.
            print(statuses("/site", "wrong", "wrong", "wrong"))
        limiter.reset("user:1", "site")
        with of_site:
            print(ask("/site", "ann").json())
        """
    )
    each = [200, 200, 429] * 2
    # A method is limited after the authentication; a limit outside denies without calling the view, which it asks once.
    assert printed == [f"{each} 6"] * 6 + ["[401, 401, 429]", "ann Token"]


def test_methods_and_actions_are_exempt_and_override():
    printed = site(
        """
        class Own(APIView):
            @limit(limiter, "own", override=True)
            def get(self, request): return Response()
            @exempt
            def post(self, request): return Response()
        class OfSet(ViewSet):
            @exempt
            def list(self, request): return Response()
            def create(self, request): return Response()
            @action(detail=False)
            @exempt
            def extra(self, request): return Response()
            @limit(limiter, "1/day fixed_window", override=True)
            def retrieve(self, request, pk): return Response()
            @limit(limiter, "1/day fixed_window", override=True)
            def destroy(self, request, pk): return Response()
        @api_view(["GET", "POST"])
        @exempt
        def below(request): return Response()
        @exempt
        @api_view(["GET", "POST"])
        def above(request): return Response()
        router = DefaultRouter()
        router.register("set", OfSet, basename="set")
        urlpatterns = [path("own", Own.as_view()), path("below", below), path("above", above), *router.urls]
        five = [None] * 5
        with of_site:
            for name in ("/own", "/set/", "/set/extra/", "/below", "/above"):
                print(statuses(name, *five))
            print(statuses("/own", *five, method="HEAD"), statuses("/own", *five, method="POST"))
            print(statuses("/set/1/", None, None), statuses("/set/1.json", None))
            print(statuses("/set/1/", None, None, method="DELETE"))
            print(statuses("/set/", *five, method="POST"))
        """
    )
    all_admitted = str([200] * 5)
    assert printed == [
        f"{[200] * 4 + [429]}",
        *[all_admitted] * 4,
        f"{[429] * 5} {all_admitted}",
        "[200, 429] [429]",
        "[200, 429]",
        f"{[200] * 2 + [429] * 3}",
    ]


def test_throttle_classes():
    printed = site(
        """
        class Base(APIView):
            authentication_classes = [TokenAuthentication]
            def get(self, request): return Response()
        class Users(Base):
            throttle_classes = [AnonRateThrottle, UserRateThrottle]
        class SameUsers(Base):
            throttle_classes = [UserRateThrottle]
        class Uploads(Base):
            throttle_classes = [ScopedRateThrottle]
            throttle_scope = "uploads"
        class NoScope(Base):
            throttle_classes = [ScopedRateThrottle]
        class Unlimited(Base):
            throttle_classes = [ScopedRateThrottle]
            throttle_scope = "none"
        class Named(Base):
            throttle_classes = [ScopedRateThrottle]
            throttle_scope = "named"
        class Missing(Base):
            throttle_classes = [ScopedRateThrottle]
            throttle_scope = "missing"
        class Burst(RateThrottle):
            rate = "2/day fixed_window"
            options = {"key": keys.header("authorization"), "missing_key": "refuse",
                       "count": lambda response: response.status_code == 200}
        class OwnOptions(Base):
            throttle_classes = [Burst]
        @api_view(["GET"])
        @throttle_classes([UserRateThrottle])
        def function(request): return Response()
        views = {view.__name__: view.as_view() for view in Base.__subclasses__()}
        urlpatterns = [path(name, view) for name, view in {**views, "function": function}.items()]
        print("users", statuses("/Users", *["ann"] * 4, "bob"), statuses("/SameUsers", "ann", "bob", "bob", "bob"))
        print("anonymous", statuses("/Users", *[None] * 4), statuses("/function", *[None] * 3))
        print("scope", statuses("/Uploads", "ann", "ann", "bob"), statuses("/NoScope", *["ann"] * 5))
        print("rates", statuses("/Unlimited", *["ann"] * 5), statuses("/Named", *["ann"] * 5))
        print("missing", statuses("/Missing", "ann"))
        print("options", statuses("/OwnOptions", *["ann"] * 3, "wrong", "wrong", "wrong", None))
        denied = ask("/Users", "ann")
        fields = denied.headers
        print(denied.json()["detail"].split(" available")[0], int(fields["retry-after"]) > 80_000)
        print(fields["ratelimit-policy"], fields["ratelimit"].split(";t=")[0])
        print(ask("/Uploads", "ann").headers["ratelimit"].split(";t=")[0])
        """
    )
    assert printed[0] == "users [200, 200, 200, 429, 200] [429, 200, 200, 429]"
    assert printed[1:6] == [
        "anonymous [200, 200, 429, 429] [200, 429, 429]",
        "scope [200, 429, 200] [200, 200, 200, 200, 200]",
        "rates [200, 200, 200, 200, 200] [200, 200, 200, 200, 429]",
        "missing [500]",
        "options [200, 200, 429, 401, 401, 401, 400]",
    ]
    assert printed[6] == "Request was throttled. Expected True"
    assert "q=3;w=86400" in printed[7]
    assert "r=0" in printed[8]


def test_format_at_the_end_of_a_path_does_not_evade_a_rule():
    printed = site(
        """
        document = '''
        polylimit = 1
        [policies.p]
        quotas = "2/day fixed_window"
        [[rules]]
        match = { path = "/set" }
        apply = [{ policy = "p", key = "all" }]
        '''
        class OfSet(ViewSet):
            def list(self, request, format=None): return Response()
        router = DefaultRouter()
        router.register("set", OfSet, basename="set")
        urlpatterns = router.urls
        with of_site, override_settings(POLYLIMIT={"limiter": Limiter(document=document)}):
            print(statuses("/set.json", None), statuses("/set/", None), statuses("/set.json", None))
        """
    )
    assert printed == ["[200] [200] [429]"]


def test_throttle_class_refuses_options_about_responses():
    printed = site(
        """
        class Own(RateThrottle):
            rate = "1/day"
            options = {"message": "later"}
        class Limited(APIView):
            throttle_classes = [Own]
            def get(self, request): return Response()
        urlpatterns = [path("", Limited.as_view())]
        try:
            Client().get("/")
        except Exception as error:
            print(error)
        """
    )
    assert printed == [
        "Own has the option message: the response to a denial is that of the exception handler of the REST framework"
    ]


def test_throttle_class_in_an_outage():
    printed = site(
        """
        from rest_framework.test import APIRequestFactory
        away = Limiter("redis://127.0.0.1:1?deadline=10ms", {"api": "2/day"}, outage={"api": "deny"})
        class Strict(RateThrottle):
            rate = "api"
            limiter = away
        class Limited(APIView):
            authentication_classes = []
            throttle_classes = [Strict]
            def get(self, request): return Response()
        urlpatterns = [path("", Limited.as_view())]
        print(ask("/").status_code)
        """
    )
    assert printed == ["503"]


def test_throttle_class_decides_by_a_document_after_the_authentication():
    printed = site(
        """
        document = '''
        polylimit = 1
        [policies.api]
        quotas = "1/day fixed_window"
        [[rules]]
        match = { route = "/users/{id}" }
        apply = [{ policy = "api", key = "{user}" }]
        '''
        class ByDocument(RateThrottle):
            limiter = Limiter("memory:", document=document)
        class Limited(APIView):
            authentication_classes = [TokenAuthentication]
            throttle_classes = [ByDocument]
            def get(self, request, **_): return Response()
        urlpatterns = [path("users/<int:id>", Limited.as_view()), path("other", Limited.as_view())]
        print(statuses("/users/1", "ann", "bob", "ann", "bob"), statuses("/other", *["ann"] * 3))
        """
    )
    assert printed == ["[200, 200, 429, 429] [200, 200, 200]"]


def test_old_version_is_refused():
    printed = python(
        """
        import importlib.metadata
        found = importlib.metadata.version
        importlib.metadata.version = lambda package: "3.13.1" if package == "djangorestframework" else found(package)
        try:
            import polylimit.drf
        except ImportError as error:
            print(error)
        """
    )
    assert printed == (
        "djangorestframework 3.13.1 is installed, allowed is 3.15 or newer: upgrade it, such as by "
        'pip install --upgrade "polylimit[drf]"\n'
    )
