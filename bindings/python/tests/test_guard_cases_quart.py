"""The cases of guards through Quart."""

import quart
from fastapi.testclient import TestClient
from guard_cases import cases_of
from guard_cases_asgi import Asgi
from polylimit import quart as of_quart


class Quart(Asgi):
    """An application and its view: the outermost guard is the application's."""

    is_application = True

    @staticmethod
    def header(request, name):
        return request.headers.get(name)

    @staticmethod
    def teapot(status, body):
        return body, status

    def make(self, guards):
        app = quart.Quart(__name__)
        app.logger.disabled = True

        async def view():
            headers = quart.request.headers
            status, fields = self.handle(headers), self.fields(headers)
            if "x-open" in headers:
                return self.parts(quart.request.scope["test"]), status, fields
            body = self.body(headers)
            return quart.Response(body if isinstance(body, str) else iter_async(body), status, fields)

        of_quart.RateLimit(app, **(guards.pop(0) if self.is_application else {}))
        for options in reversed(guards):
            view = of_quart.limit(**options)(view)
        app.add_url_rule("/", "view", view, methods=["GET", "POST", "DELETE"])
        self.app = app
        self.client = TestClient(app, client=self.peer, raise_server_exceptions=False)

    async def parts(self, connection):
        yield b"view"
        await connection.stay()
        yield b"more"


async def iter_async(pieces):
    for piece in pieces:
        yield piece.encode()


class QuartViews(Quart):
    """All guards are the view's."""

    is_application = False


test_case = cases_of(Quart, QuartViews)
