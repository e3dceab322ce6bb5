"""`keys.user()` with the sessions and users of a real Django, in its database."""

import textwrap

import pytest
from test_process import python

SITE = """
    import asyncio, sys, tempfile
    from functools import partial
    from pathlib import Path
    from django.conf import settings
    from polylimit import Limiter
    where = tempfile.TemporaryDirectory()
    limiter = Limiter(policies={"api": "5/day", "login": "5/day"})
    of_auth = ["django.contrib.sessions.middleware.SessionMiddleware",
               "django.contrib.auth.middleware.AuthenticationMiddleware"]
    of_site = ["polylimit.django.RateLimitMiddleware"]
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="a", USE_TZ=True,
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(where.name) / "users")}},
        MIDDLEWARE=of_auth,
        POLYLIMIT={"limiter": limiter, "policy": "api", "key": "user"},
    )
    import django
    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.db import connections
    from django.http import HttpResponse
    from django.test import AsyncClient, Client, override_settings
    from django.urls import path
    from polylimit import keys
    from polylimit.django import limit
    call_command("migrate", verbosity=0)
    ann = User.objects.create_user("ann")
    limited = limit(limiter, "login", key=keys.user())

    @limited
    def blocking(request):
        return HttpResponse(request.user.username)

    @limited
    async def asynchronous(request):
        return HttpResponse((await request.auser()).username)

    urlpatterns = [path("blocking", blocking), path("asynchronous", asynchronous)]

    def left():
        return [limiter.peek(key, name).remaining for name in ("api", "login") for key in ("user:1", "127.0.0.1")]

    def ask(name, user):
        client = Client()
        if user is not None:
            client.force_login(user)
        response = client.get(name)
        return response.status_code, response.content.decode()

    def ask_async(name, user):
        client = AsyncClient()
        if user is not None:
            client.force_login(user)
        async def main():
            response = await client.get(name)
            return response.status_code, response.content.decode()
        return asyncio.run(main())
"""


def site(program: str) -> list[str]:
    end = "connections.close_all()\nwhere.cleanup()\n"
    return python(textwrap.dedent(SITE) + textwrap.dedent(program) + end).splitlines()


@pytest.mark.parametrize("asked", ["ask", "ask_async"])
@pytest.mark.parametrize("name", ["/blocking", "/asynchronous"])
def test_user_of_the_session_is_the_key(asked, name):
    # `ask` runs the site under WSGI, `ask_async` under ASGI; Django adapts a view of the other kind.
    printed = site(
        f"""
        print({asked}({name!r}, ann), {asked}({name!r}, None), left())
        with override_settings(MIDDLEWARE=[*of_auth, *of_site]):
            print({asked}({name!r}, ann), {asked}({name!r}, None), left())
        """
    )
    assert printed == ["(200, 'ann') (200, '') [5, 5, 4, 4]", "(200, 'ann') (200, '') [4, 4, 3, 3]"]


@pytest.mark.parametrize("asked", ["ask", "ask_async"])
def test_user_that_is_lazy_without_auser_is_the_key(asked):
    # Before Django 5.0, and with middlewares that set only `request.user`.
    printed = site(
        f"""
        from django.contrib.auth import get_user
        from django.utils.functional import SimpleLazyObject
        class OldAuthentication:
            def __init__(self, respond):
                self.respond = respond
            def __call__(self, request):
                request.user = SimpleLazyObject(partial(get_user, request))
                return self.respond(request)
        @limited
        async def plain(request):
            return HttpResponse("plain")
        urlpatterns.append(path("plain", plain))
        with override_settings(MIDDLEWARE=[of_auth[0], "__main__.OldAuthentication", *of_site]):
            print({asked}("/plain", ann), {asked}("/plain", None), left())
        """
    )
    assert printed == ["(200, 'plain') (200, 'plain') [4, 4, 4, 4]"]


def test_user_that_another_middleware_sets_is_the_key():
    printed = site(
        """
        class Token:
            def __init__(self, respond):
                self.respond = respond
            def __call__(self, request):
                request.user = ann
                return self.respond(request)
        with override_settings(MIDDLEWARE=[*of_auth, "__main__.Token"]):
            print(ask("/blocking", None), ask_async("/asynchronous", None), left())
        """
    )
    assert printed == ["(200, 'ann') (200, '') [5, 5, 3, 5]"]


def test_request_without_users_counts_by_address():
    printed = site(
        """
        async def anonymous(request):
            return HttpResponse("anonymous")
        urlpatterns.append(path("anonymous", limited(anonymous)))
        with override_settings(MIDDLEWARE=of_site):
            print(ask_async("/anonymous", None), ask("/anonymous", None), left())
        """
    )
    assert printed == ["(200, 'anonymous') (200, 'anonymous') [5, 3, 5, 3]"]
