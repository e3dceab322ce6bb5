"""FastAPI: limits of a middleware, of dependencies, and of routers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "asgi"))

import fastapi
from fastapi import APIRouter, Depends, FastAPI
from polylimit import AsyncLimiter, keys
from polylimit.fastapi import RateLimit, RateLimitMiddleware
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document, serve
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

BY_CLIENT = keys.header(CLIENT)
GET = ["GET", "HEAD"]


def limited(**options: Any) -> RateLimit:
    """Return a limit by client."""
    return RateLimit(AsyncLimiter(), QUOTAS, key=BY_CLIENT, **options)


def by_document(attribute: str) -> RateLimit:
    """Return a limit by a document."""
    return RateLimit(AsyncLimiter(document=document(attribute)))


def application(
    of_app: list[Any] = [],  # noqa: B006
    *,
    of_route: Any = None,
    of_router: list[Any] = [],  # noqa: B006
    of_inclusion: list[Any] = [],  # noqa: B006
    middleware: RateLimit | None = None,
    is_mounted: bool = False,
) -> FastAPI:
    """Return an application with the handlers."""
    runs = Runs()

    def handler(name: str) -> Any:
        # The annotation is an object: versions before 0.124 do not find the names of texts in a function like this.
        async def handle(request: HTTPConnection) -> Any:
            return PlainTextResponse("ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        handle.__annotations__ = {"request": HTTPConnection}
        return handle

    def own() -> list[Any]:
        return [] if of_route is None else [Depends(of_route())]

    app = FastAPI(dependencies=[Depends(one) for one in of_app])
    app.add_api_route("/login", handler("login"), methods=["POST"], dependencies=own())
    app.add_api_route("/report", handler("report"), methods=GET, dependencies=own())
    router = APIRouter(dependencies=[Depends(one) for one in of_router])
    router.add_api_route("/users/{id}", handler("user"), methods=GET, dependencies=own())
    if is_mounted:
        inner = FastAPI()
        inner.include_router(router)
        inner.add_middleware(RateLimitMiddleware, limit=limited())
        app.mount("/v1", inner)
    else:
        app.include_router(router, prefix="/v1", dependencies=[Depends(one) for one in of_inclusion])
    if middleware is not None:
        app.add_middleware(RateLimitMiddleware, limit=middleware)
    return app


def separate() -> FastAPI:
    """Return an application with routers and mounted applications of the same quotas."""
    limit = RateLimit(AsyncLimiter(), "1/hour fixed_window", key=BY_CLIENT)
    app = FastAPI()

    async def ran() -> str:
        return "ran"

    def router(*, has_methods: bool = False) -> APIRouter:
        made = APIRouter(dependencies=[Depends(limit)])
        made.add_api_route("/{id}", ran, methods=["GET"])
        if has_methods:
            made.add_api_route("/{id}", ran, methods=["POST"])
        return made

    twice = router(has_methods=True)
    outer = APIRouter(prefix="/outer")
    outer.include_router(twice, prefix="/inner")
    for part, prefix in ((router(), "/a"), (router(), "/b"), (twice, "/c"), (twice, "/d"), (outer, ""), (outer, "/e")):
        app.include_router(part, prefix=prefix)
    for number in (1, 2):
        inner = FastAPI()
        inner.include_router(twice, prefix="/x")
        app.mount(f"/mounted/{number}", inner)
    whole = FastAPI()
    whole.add_api_route("/x", ran)
    whole.add_middleware(RateLimitMiddleware, limit=limit)
    app.mount("/middleware/1", whole)
    app.mount("/middleware/2", whole)
    return app


SEPARATE = [
    *("GET:/a/1", "GET:/b/1", "GET:/c/1", "POST:/c/1", "GET:/d/1", "GET:/outer/inner/1", "GET:/e/outer/inner/1"),
    *("GET:/mounted/1/x/1", "GET:/mounted/2/x/1", "GET:/middleware/1/x", "GET:/middleware/2/x"),
]

SITES = {
    "global": (lambda: application(middleware=limited()), HANDLERS),
    "methods": (lambda: application(middleware=limited(methods=["get", "post"])), HANDLERS),
    "path_rules": (lambda: application(middleware=by_document("path")), HANDLERS),
    "route_rules": (lambda: application([by_document("route")]), HANDLERS),
    "path_rules_of_dependency": (lambda: application([by_document("path")]), HANDLERS),
    "route": (lambda: application(of_route=limited), HANDLERS),
    "router": (lambda: application(of_router=[limited()]), "user"),
    "inclusion": (lambda: application(of_inclusion=[limited()]), "user"),
    "app_dependency": (lambda: application([limited()]), HANDLERS),
    "mount": (lambda: application(is_mounted=True), "user"),
    "separate": (separate, ",".join(SEPARATE)),
}

if __name__ == "__main__":
    serve(SITES, {"FastAPI": fastapi.__version__})
