"""The cases of guards through FastAPI."""

from fastapi import Depends, FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from fastapi.testclient import TestClient
from guard_cases import cases_of
from guard_cases_asgi import Asgi
from polylimit import fastapi as of_fastapi


class FastApi(Asgi):
    """Middlewares of an application."""

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return PlainTextResponse(body, status)

    def make(self, guards):
        app = FastAPI()
        for options in reversed(self.add_guards(app, guards)):
            app.add_middleware(of_fastapi.RateLimitMiddleware, **options)
            # An invalid option raises when the application starts.
            of_fastapi.RateLimitMiddleware(app, **options)
        self.app = app
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    def add_guards(self, app, guards):
        app.api_route("/", methods=["GET", "HEAD", "POST", "DELETE"])(self.view)
        return guards

    async def view(self, request: of_fastapi.Request):
        status, fields = self.handle(request.headers), self.fields(request.headers)
        if "x-open" in request.headers:
            return StreamingResponse(self.parts(request.scope["test"]), status, fields)
        body = self.body(request.headers) if "x-body" in request.headers else ""
        if isinstance(body, str):
            return Response(body, status_code=status, headers=fields)
        return StreamingResponse(iter(body), status, fields)

    async def parts(self, connection):
        yield b"view"
        await connection.stay()
        yield b"more"


class FastApiRoute(FastApi):
    """Dependencies of a route, with a middleware that has no limit."""

    def add_guards(self, app, guards):
        limits = [Depends(of_fastapi.RateLimit(**options)) for options in guards]
        app.api_route("/", methods=["GET", "HEAD", "POST", "DELETE"], dependencies=limits)(self.view)
        return [{}]


test_case = cases_of(FastApi, FastApiRoute)
