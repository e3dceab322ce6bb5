"""Litestar: limits of a middleware on an application, a router, a controller or a handler."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "asgi"))

from litestar import Controller, Litestar, Request, Response, Router, get, post, route
from litestar.middleware import DefineMiddleware
from polylimit import AsyncLimiter, asgi, keys
from polylimit.litestar import Limit, RateLimitMiddleware
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document, serve

BY_CLIENT = keys.header(CLIENT)
ONCE = "1/hour fixed_window"


def limited(limiter: AsyncLimiter | None = None, policy: str | None = QUOTAS, **options: Any) -> list[DefineMiddleware]:
    """Return a middleware with a limit by client."""
    limit = Limit(limiter or AsyncLimiter(), policy, key=BY_CLIENT, **options)
    return [DefineMiddleware(RateLimitMiddleware, limit=limit)]


def by_document(attribute: str) -> list[DefineMiddleware]:
    """Return a middleware with limits by a document."""
    return [DefineMiddleware(RateLimitMiddleware, limit=Limit(AsyncLimiter(document=document(attribute))))]


def application(
    middleware: list[DefineMiddleware] | None = None,
    *,
    of_router: list[DefineMiddleware] | None = None,
    of_controller: list[DefineMiddleware] | None = None,
    of_handler: Any = list,
) -> Litestar:
    """Return an application with the handlers."""
    runs = Runs()

    def ran(request: Request[Any, Any, Any], name: str) -> Response[str]:
        return Response("ran", headers=runs.of(name, request.headers.get(CLIENT, "")), media_type="text/plain")

    @post("/login", status_code=200, middleware=of_handler())
    async def login(request: Request[Any, Any, Any]) -> Response[str]:
        return ran(request, "login")

    # Litestar answers HEAD by a handler that names it alone.
    @route("/report", http_method=["GET", "HEAD"], status_code=200, middleware=of_handler())
    async def report(request: Request[Any, Any, Any]) -> Response[str]:
        return ran(request, "report")

    class Users(Controller):
        path = "/users"
        middleware = of_controller or []

        @route("/{id:int}", http_method=["GET", "HEAD"], status_code=200, middleware=of_handler())
        async def user(self, request: Request[Any, Any, Any], id: int) -> Response[str]:  # noqa: A002, ARG002
            return ran(request, "user")

    v1 = Router("/v1", route_handlers=[Users], middleware=of_router or [])
    return Litestar([login, report, v1], middleware=middleware or [])


def in_front() -> Any:
    """Return an application with the middleware of ASGI around it, in front of the routing."""
    return asgi.RateLimitMiddleware(application(), limiter=AsyncLimiter(document=document("path")))


def separate() -> Litestar:
    """Return an application with routers and handlers of the same quotas."""
    limiter = AsyncLimiter()

    @get("/x", media_type="text/plain")
    async def x() -> str:
        return "ran"

    @get("/y/{id:int}", media_type="text/plain")
    async def y(id: int) -> str:  # noqa: A002, ARG001
        return "ran"

    routers = [Router(path, route_handlers=[x, y], middleware=limited(limiter, ONCE)) for path in ("/a", "/b", "/c/d")]
    own = [get(f"/own/{name}", media_type="text/plain", middleware=limited(limiter, ONCE))(ran) for name in ("x", "y")]
    return Litestar([*routers, *own])


async def ran() -> str:
    """Return what every handler does."""
    return "ran"


SEPARATE = ["GET:/a/x", "GET:/a/y/1", "GET:/b/x", "GET:/b/y/1", "GET:/c/d/x", "GET:/own/x", "GET:/own/y"]

SITES = {
    "global": (lambda: application(limited()), HANDLERS),
    "methods": (lambda: application(limited(methods=["get", "post"])), HANDLERS),
    "path_rules": (lambda: application(by_document("path")), HANDLERS),
    "path_rules_in_front_of_routing": (in_front, HANDLERS),
    "route_rules": (lambda: application(by_document("route")), HANDLERS),
    "router": (lambda: application(of_router=limited()), "user"),
    "controller": (lambda: application(of_controller=limited()), "user"),
    "handler": (lambda: application(of_handler=limited), HANDLERS),
    "separate": (separate, ",".join(SEPARATE)),
}

if __name__ == "__main__":
    serve(SITES, {"Litestar": version("litestar")})
