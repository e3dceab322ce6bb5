"""The cases of guards through Django."""

import asyncio
from functools import partial

import django
from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from guard_cases import OpenResponse, Service, cases_of
from polylimit import django as of_django


class Django(Service):
    """A site and its view: the outermost guard is the middleware's."""

    is_async = False

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return HttpResponse(body, status=status)

    def make(self, guards):
        if not settings.configured:
            settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="a", LOGGING_CONFIG=None)
            django.setup()

        def respond(request):
            headers = {name.lower(): value for name, value in request.headers.items()}
            status, fields = self.handle(headers), self.fields(headers)
            body = ["view", "more"] if "x-open" in headers else self.body(headers)
            if isinstance(body, str):
                return HttpResponse(body, status=status, headers=fields)
            parts = self.parts_async(body) if self.is_async else iter(body)
            return StreamingHttpResponse(parts, status=status, headers=fields)

        async def respond_async(request):
            return respond(request)

        view = respond_async if self.is_async else respond
        self.site = guards[0] if self.is_middleware(guards) else None
        for options in reversed(guards if self.site is None else guards[1:]):
            view = of_django.limit(**options)(view)
        if self.site is not None:
            of_django.Guard(**self.site)
        self.urls = type("Urls", (), {"urlpatterns": [path("", view)]})
        self.client = (AsyncClient if self.is_async else Client)(raise_request_exception=False)
        self.loop = asyncio.new_event_loop() if self.is_async else None

    def is_middleware(self, _guards):
        return True

    def close(self):
        if self.loop is not None:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def parts_async(self, parts):
        for part in parts:
            yield part

    def send(self, method, headers):
        response = self.respond(method, headers)
        body = self.read(response)
        response.close()
        return response.status_code, response.headers, body.decode()

    def open(self, method, headers):
        response = self.respond(method, headers)
        return response.status_code, response.headers, OpenResponse(response, partial(self.read, response))

    def read(self, response):
        if not response.streaming or not self.is_async:
            return response.getvalue()

        async def read_async():
            return b"".join([part async for part in response])

        return self.loop.run_until_complete(read_async())

    def respond(self, method, headers):
        middleware = [] if self.site is None else ["polylimit.django.RateLimitMiddleware"]
        with override_settings(ROOT_URLCONF=self.urls, MIDDLEWARE=middleware, POLYLIMIT=self.site):
            # A client loads the middleware at its first request, and sends no cookies but its own.
            self.client.cookies.load(headers.pop("cookie", ""))
            response = self.client.generic(method, "/", headers=headers)
            if self.is_async:
                response = self.loop.run_until_complete(response)
        return response


class DjangoViews(Django):
    """All guards are the view's."""

    def is_middleware(self, _guards):
        return False


class DjangoAsync(Django):
    """The same site with an asynchronous view."""

    is_async = True


class DjangoAsyncViews(DjangoViews):
    is_async = True


test_case = cases_of(Django, DjangoViews, DjangoAsync, DjangoAsyncViews)
