"""Starlette: limits of a middleware around an application, a mount or a route."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "asgi"))

import starlette
from polylimit import AsyncLimiter, keys
from polylimit.fastapi import RateLimit, RateLimitMiddleware
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document, serve
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, Router

BY_CLIENT = keys.header(CLIENT)
ONCE = "1/hour fixed_window"


def limited(limiter: AsyncLimiter | None = None, policy: str | None = QUOTAS, **options: Any) -> Middleware:
    """Return a middleware with a limit by client."""
    limit = RateLimit(limiter or AsyncLimiter(), policy, key=BY_CLIENT, **options)
    return Middleware(RateLimitMiddleware, limit=limit)


def by_document(attribute: str) -> Middleware:
    """Return a middleware with limits by a document."""
    return Middleware(RateLimitMiddleware, limit=RateLimit(AsyncLimiter(document=document(attribute))))


def around(app: Any, middleware: Middleware) -> Any:
    """Return an application with a middleware around it, which an endpoint may be in every version."""
    return middleware.cls(app, **getattr(middleware, "kwargs", None) or middleware.options)


def application(
    middleware: list[Middleware] | None = None,
    *,
    of_mount: list[Middleware] | None = None,
    of_route: Any = None,
) -> Starlette:
    """Return an application with the handlers."""
    runs = Runs()

    def route(path: str, name: str, method: str) -> Route:
        async def handler(request: Request) -> PlainTextResponse:
            return PlainTextResponse("ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        if of_route is None:
            return Route(path, handler, methods=[method])

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await (await handler(Request(scope, receive)))(scope, receive, send)

        limited_app = around(app, of_route())
        made = Route(path, limited_app)
        # An endpoint that is an ASGI application has no methods of its own.
        made.methods = {"GET", "HEAD"} if method == "GET" else {method}
        return made

    routes = [
        route("/login", "login", "POST"),
        route("/report", "report", "GET"),
        Mount("/v1", routes=[route("/users/{id:int}", "user", "GET")], middleware=of_mount),
    ]
    return Starlette(routes=routes, middleware=middleware)


def separate() -> Starlette:
    """Return an application with mounts and routes of the same quotas."""
    limiter = AsyncLimiter()

    async def ran(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ran")

    def inner() -> Router:
        return Router([Route("/x", ran), Route("/y/{id}", ran)])

    def once() -> Middleware:
        return limited(limiter, ONCE)

    async def ran_app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("ran")(scope, receive, send)

    twice = around(inner(), once())
    return Starlette(
        routes=[
            Mount("/a", app=inner(), middleware=[once()]),
            Mount("/b", app=inner(), middleware=[once()]),
            Mount("/twice/1", app=twice),
            Mount("/twice/2", app=twice),
            Mount("/sub/1", app=Starlette(routes=[Route("/x", ran)], middleware=[once()])),
            Mount("/sub/2", app=Starlette(routes=[Route("/x", ran)], middleware=[once()])),
            Mount("/nested", routes=[Mount("/c", app=twice), Mount("/d", app=twice)]),
            Mount("/routes", routes=[Route(f"/{name}", around(ran_app, once())) for name in ("x", "y")]),
        ]
    )


SEPARATE = [
    *("GET:/a/x", "GET:/b/x", "GET:/twice/1/x", "GET:/twice/2/y/1", "GET:/sub/1/x", "GET:/sub/2/x"),
    *("GET:/nested/c/x", "GET:/nested/d/x", "GET:/routes/x", "GET:/routes/y"),
]

SITES = {
    "global": (lambda: application([limited()]), HANDLERS),
    "methods": (lambda: application([limited(methods=["get", "post"])]), HANDLERS),
    "path_rules": (lambda: application([by_document("path")]), HANDLERS),
    "mount": (lambda: application(of_mount=[limited()]), "user"),
    "route": (lambda: application(of_route=limited), HANDLERS),
    "route_rules": (lambda: application(of_route=lambda: by_document("route")), HANDLERS),
    "separate": (separate, ",".join(SEPARATE)),
}

if __name__ == "__main__":
    serve(SITES, {"Starlette": starlette.__version__})
