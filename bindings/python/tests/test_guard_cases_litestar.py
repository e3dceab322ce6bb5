"""The cases of guards through Litestar."""

import litestar
from fastapi.testclient import TestClient
from guard_cases import cases_of
from guard_cases_asgi import Asgi
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import DefineMiddleware
from litestar.response.base import ASGIResponse
from polylimit.litestar import RateLimitMiddleware


class Litestar(Asgi):
    """Middlewares of an application, around one handler."""

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return ASGIResponse(body=body, status_code=status)

    def make(self, guards):
        async def view(request: litestar.Request) -> litestar.Response:
            status, fields = self.handle(request.headers), self.fields(request.headers)
            kind = fields.pop("content-type", "text/plain")
            if "x-open" in request.headers:
                parts = self.parts(request.scope["test"])
                return litestar.response.Stream(parts, status_code=status, headers=fields, media_type=kind)
            body = self.body(request.headers) if "x-body" in request.headers else ""
            if isinstance(body, str):
                return litestar.Response(body.encode(), status_code=status, headers=fields, media_type=kind)
            return litestar.response.Stream(iter(body), status_code=status, headers=fields, media_type=kind)

        # The annotations of a function within a method are no names of the module.
        view.__annotations__ = {"request": litestar.Request, "return": litestar.Response}
        methods = ["GET", "HEAD", "POST", "DELETE"]
        handler = HTTPRouteHandler("/", http_method=methods, status_code=200)(view)
        middleware = [DefineMiddleware(RateLimitMiddleware, **options) for options in guards]
        self.app = litestar.Litestar([handler], middleware=middleware)
        self.client = TestClient(self.app, client=self.peer, raise_server_exceptions=False)

    async def parts(self, connection):
        yield b"view"
        await connection.stay()
        yield b"more"


test_case = cases_of(Litestar)
