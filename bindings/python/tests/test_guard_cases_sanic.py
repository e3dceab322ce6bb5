"""The cases of guards through Sanic, on its own server."""

import asyncio
from collections import defaultdict

from guard_cases import cases_of
from guard_cases_socket import SocketService
from polylimit import AsyncLimiter
from polylimit import sanic as of_sanic
from sanic import HTTPResponse
from sanic_server import application, request, serve, stop


class SanicApplication(SocketService):
    """An application and its handler on a socket: the outermost guard is the application's."""

    limiter_class = AsyncLimiter
    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return HTTPResponse(body, status)

    @staticmethod
    def status_of(response):
        return response.status

    def make(self, guards):
        self._released, self._sessions = defaultdict(asyncio.Event), []

        async def view(request):
            status, fields = self.handle(request.headers), self.fields(request.headers)
            body = self.body(request.headers)
            kind = fields.pop("content-type", None)
            if "x-open" not in request.headers and isinstance(body, str):
                return HTTPResponse(body, status, fields, kind)
            response = await request.respond(status=status, headers=fields, content_type=kind)
            if "x-open" in request.headers:
                await response.send("view")
                await self._released[request.headers["x-open"]].wait()
                body = ["more"]
            for piece in body:
                await response.send(piece)
            await response.eof()
            return None

        app = application()
        if self.is_application:
            of_sanic.setup(app, **guards.pop(0))
        for options in reversed(guards):
            view = of_sanic.limit(**options)(view)
        app.add_route(view, "/", methods=["GET", "HEAD", "POST", "DELETE"], name="view")
        self._loop = asyncio.new_event_loop()
        self._server, self._url = self._loop.run_until_complete(serve(app))

    def close(self):
        for released in self._released.values():
            released.set()
        for session in self._sessions:
            self._loop.run_until_complete(session.close())
        self._loop.run_until_complete(stop(self._server))
        self._loop.close()

    def send(self, method, headers):
        return self._loop.run_until_complete(request(method, self._url, headers))


class SanicHandlers(SanicApplication):
    """All guards are the handler's."""

    is_application = False


test_case = cases_of(SanicApplication, SanicHandlers)
