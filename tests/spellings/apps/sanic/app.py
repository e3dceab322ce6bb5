"""Sanic on its own server: limits of applications, blueprints and handlers."""

from __future__ import annotations

import asyncio
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "asgi"))

from polylimit import AsyncLimiter, keys
from polylimit.sanic import limit, setup
from sanic import Blueprint, HTTPResponse, Request, Sanic, text
from sanic.views import HTTPMethodView
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document

if TYPE_CHECKING:
    from collections.abc import Callable

BY_CLIENT = keys.header(CLIENT)
ONCE = "1/hour fixed_window"
#: Sanic answers HEAD by a handler that names it.
READ = ["GET", "HEAD"]


def plain(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler as it is."""
    return handler


def limited(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler with a limit of its own."""
    return limit(AsyncLimiter(), QUOTAS, key=BY_CLIENT)(handler)


def application(name: str, decorate: Callable[..., Any] = plain, **of_part: Any) -> Sanic:
    """Return an application with the handlers, and with a limit on its blueprint."""
    app, part, runs = Sanic(name, configure_logging=False), Blueprint("part", url_prefix="/v1"), Runs()

    def handler(name: str) -> Callable[..., Any]:
        async def ran(request: Request, **_parameters: Any) -> HTTPResponse:
            return text("ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        return decorate(ran)

    app.add_route(handler("login"), "/login", methods=["POST"], name="login")
    app.add_route(handler("report"), "/report", methods=READ, name="report")
    part.add_route(handler("user"), "/users/<id:int>", methods=READ, name="user")
    if of_part:
        setup(part, **of_part)
    app.blueprint(part)
    return app


def whole(name: str, **options: Any) -> Sanic:
    """Return an application with a limit on all requests."""
    app = application(name)
    setup(app, **{"limiter": AsyncLimiter(), "policy": QUOTAS, "key": BY_CLIENT, **options})
    return app


def by_document(attribute: str) -> Callable[[str], Sanic]:
    """Return what makes an application with limits by a document."""

    def make(name: str) -> Sanic:
        app = application(name)
        setup(app, AsyncLimiter(document=document(attribute)))
        return app

    return make


def class_based(name: str) -> Sanic:
    """Return an application with limits on the methods of its classes."""
    app, runs = Sanic(name, configure_logging=False), Runs()

    def view(handler: str, *methods: str) -> Callable[..., Any]:
        @limited
        async def ran(_view: HTTPMethodView, request: Request, **_parameters: Any) -> HTTPResponse:
            return text("ran", headers=runs.of(handler, request.headers.get(CLIENT, "")))

        return type(handler, (HTTPMethodView,), dict.fromkeys(methods, ran)).as_view()

    app.add_route(view("login", "post"), "/login", name="login")
    app.add_route(view("report", "get", "head"), "/report", name="report")
    app.add_route(view("user", "get", "head"), "/v1/users/<id:int>", name="user")
    return app


def separate(name: str) -> Sanic:
    """Return an application with blueprints and handlers of the same quotas."""
    app, limiter = Sanic(name, configure_logging=False), AsyncLimiter()

    async def ran(_request: Request) -> HTTPResponse:
        return text("ran")

    for one in ("a", "b"):
        part = Blueprint(one, url_prefix=f"/{one}")
        part.add_route(ran, "/x", name="x")
        setup(part, limiter, ONCE, key=BY_CLIENT)
        app.blueprint(part)
        app.add_route(limit(limiter, ONCE, key=BY_CLIENT)(ran), f"/handlers/{one}", name=f"handler_{one}")
    return app


SEPARATE = ["GET:/a/x", "GET:/b/x", "GET:/handlers/a", "GET:/handlers/b"]

SITES: dict[str, tuple[Callable[[str], Sanic], str]] = {
    "global": (whole, HANDLERS),
    "methods": (lambda name: whole(name, methods=["get", "post"]), HANDLERS),
    "path_rules": (by_document("path"), HANDLERS),
    "route_rules": (by_document("route"), HANDLERS),
    "router": (lambda name: application(name, limiter=AsyncLimiter(), policy=QUOTAS, key=BY_CLIENT), "user"),
    "decorator": (lambda name: application(name, limited), HANDLERS),
    "class_based": (class_based, HANDLERS),
    "separate": (separate, ",".join(SEPARATE)),
}


async def main() -> None:
    """Serve the sites until standard input is closed."""
    for name, (make, handlers) in SITES.items():
        app = make(name)
        # It adapts the classes of Sanic to the one application of a process.
        app.config.TOUCHUP = False
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        server = await app.create_server(sock=listener, return_asyncio_server=True, access_log=False)
        await server.startup()
        await server.start_serving()
        print("listening", name, listener.getsockname()[1], handlers)
    print("version Sanic", version("sanic"))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
