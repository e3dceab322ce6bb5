"""A service of ASGI for the cases of guards, and a connection to one."""

import asyncio

from fastapi.testclient import TestClient
from guard_cases import Service
from polylimit import AsyncLimiter, asgi


class Asgi(Service):
    """Middlewares around an application without a framework."""

    limiter_class = AsyncLimiter
    peer = ("127.0.0.1", 1)

    @staticmethod
    def header(scope, name):
        return {key.decode(): value.decode() for key, value in scope["headers"]}.get(name)

    @staticmethod
    def teapot(status, body):
        async def respond(_scope, _receive, send):
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": body.encode()})

        return respond

    @staticmethod
    def response_header(response, name):
        return {key.decode(): value.decode() for key, value in response.headers}.get(name)

    def make(self, guards):
        async def app(scope, receive, send):
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            status = self.handle(headers)
            fields = [(name.encode(), value.encode()) for name, value in self.fields(headers).items()]
            await send({"type": "http.response.start", "status": status, "headers": fields})
            if "x-open" in headers:
                await send({"type": "http.response.body", "body": b"view", "more_body": True})
                await scope["test"].stay(receive)
            body = self.body(headers)
            *first, last = [body] if isinstance(body, str) else body
            for piece in first:
                await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": last.encode()})

        for options in reversed(guards):
            app = asgi.RateLimitMiddleware(app, **options)
        self.app = app
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    def send(self, method, headers):
        response = self.client.request(method, "/", headers=headers)
        return response.status_code, response.headers, response.text

    def open(self, method, headers):
        connection = AsgiConnection(self.app, self.peer, method, headers)
        start = connection.start()
        return start["status"], {key.decode(): value.decode() for key, value in start["headers"]}, connection

    def peek(self, key, policy):
        return self.memory.blocking.peek(key, policy)


class AsgiConnection:
    """A connection whose response is sent in parts, in an event loop that runs as far as the test lets it."""

    def __init__(self, app, peer, method, headers):
        self._loop = asyncio.new_event_loop()
        self._sent = []
        self._is_released = asyncio.Event()
        self._has_left = asyncio.Event()
        self._has_body = asyncio.Event()
        self._has_request = False
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": "/",
            "raw_path": b"/",
            "root_path": "",
            "query_string": b"",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": peer,
            "server": ("test", 80),
            "test": self,
        }
        self._task = self._loop.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if not self._has_request:
            self._has_request = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self._sent.append(message)
        if message["type"] == "http.response.body":
            if message.get("body"):
                self._has_body.set()
            if not message.get("more_body"):
                # Servers report this when a response is done, and some frameworks wait for it.
                self._has_left.set()

    async def stay(self, receive=None):
        """Wait until the test closes the response, or its client has left."""
        waits = [asyncio.ensure_future(self._is_released.wait())]
        if receive is not None:
            waits.append(asyncio.ensure_future(self._until_disconnect(receive)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _until_disconnect(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass

    def start(self):
        body = self._loop.create_task(self._has_body.wait())
        self._loop.run_until_complete(asyncio.wait([self._task, body], return_when=asyncio.FIRST_COMPLETED))
        body.cancel()
        return self._sent[0]

    def close(self):
        self._end(self._is_released)

    def leave(self):
        self._end(self._has_left)

    def _end(self, event):
        event.set()
        self._loop.run_until_complete(self._task)
        self._loop.close()
