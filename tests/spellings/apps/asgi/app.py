"""An ASGI application without a framework: limits of a middleware around it."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

from polylimit import AsyncLimiter, keys
from polylimit.asgi import RateLimitMiddleware
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document, serve

ROUTES = {
    "login": ({"POST"}, "/login"),
    "report": ({"GET", "HEAD"}, "/report"),
    "user": ({"GET", "HEAD"}, r"/v1/users/\d+"),
}


def application() -> Any:
    """Return an application with the handlers."""
    runs = Runs()

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        fields = [(b"content-length", b"0")]
        status = 404
        for name, (methods, pattern) in ROUTES.items():
            if scope["method"] in methods and re.fullmatch(pattern, scope["path"]):
                client = dict(scope["headers"]).get(CLIENT.encode(), b"").decode("latin-1")
                status = 200
                fields += [(key.encode(), value.encode()) for key, value in runs.of(name, client).items()]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body"})

    return app


def whole(**options: Any) -> Any:
    """Return an application with a limit on all requests."""
    return RateLimitMiddleware(application(), limiter=AsyncLimiter(), policy=QUOTAS, key=keys.header(CLIENT), **options)


if __name__ == "__main__":
    serve(
        {
            "global": (whole, HANDLERS),
            "methods": (lambda: whole(methods=["get", "post"]), HANDLERS),
            "path_rules": (
                lambda: RateLimitMiddleware(application(), limiter=AsyncLimiter(document=document("path"))),
                HANDLERS,
            ),
        },
        {"uvicorn": version("uvicorn")},
    )
