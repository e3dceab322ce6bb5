"""The cases of guards through the server of aiohttp."""

import asyncio
from collections import defaultdict

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from guard_cases import cases_of
from guard_cases_socket import SocketService
from polylimit import AsyncLimiter, aiohttp_server


class Aiohttp(SocketService):
    """An application and its handler on a socket: the outermost guard is the application's."""

    limiter_class = AsyncLimiter
    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return web.Response(status=status, text=body)

    @staticmethod
    def status_of(response):
        return response.status

    def make(self, guards):
        self._released, self._sessions = defaultdict(asyncio.Event), []

        async def view(request):
            status, fields = self.handle(request.headers), self.fields(request.headers)
            body = self.body(request.headers)
            if "x-open" not in request.headers and isinstance(body, str):
                return web.Response(status=status, headers=fields, body=body.encode())
            response = web.StreamResponse(status=status, headers=fields)
            await response.prepare(request)
            if "x-open" in request.headers:
                await response.write(b"view")
                await self._released[request.headers["x-open"]].wait()
                body = ["more"]
            for piece in body:
                await response.write(piece.encode())
            return response

        app = web.Application()
        aiohttp_server.setup(app, **(guards.pop(0) if self.is_application else {}))
        for options in reversed(guards):
            view = aiohttp_server.limit(**options)(view)
        app.router.add_route("*", "/", view)
        self._loop = asyncio.new_event_loop()
        # An application that others stop waits for its handlers.
        self._server = TestServer(app, handler_cancellation=True)
        self._loop.run_until_complete(self._server.start_server())
        self._url = str(self._server.make_url("/"))

    def close(self):
        for released in self._released.values():
            released.set()
        for session in self._sessions:
            self._loop.run_until_complete(session.close())
        self._loop.run_until_complete(self._server.close())
        self._loop.close()

    def send(self, method, headers):
        return self._loop.run_until_complete(self._request(method, headers))

    async def _request(self, method, headers):
        async with (
            aiohttp.ClientSession(skip_auto_headers=["accept", "user-agent"]) as session,
            session.request(method, self._url, headers=headers) as response,
        ):
            return response.status, response.headers, await response.text()


class AiohttpHandlers(Aiohttp):
    """All guards are the handler's."""

    is_application = False


test_case = cases_of(Aiohttp, AiohttpHandlers)
