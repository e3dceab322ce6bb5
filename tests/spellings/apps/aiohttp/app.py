"""The server of aiohttp: limits of applications, sub-applications and handlers."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "asgi"))

from aiohttp import web
from polylimit import AsyncLimiter, keys
from polylimit.aiohttp_server import limit, setup
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document

if TYPE_CHECKING:
    from collections.abc import Callable

BY_CLIENT = keys.header(CLIENT)
ONCE = "1/hour fixed_window"


def plain(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler as it is."""
    return handler


def limited(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler with a limit of its own."""
    return limit(AsyncLimiter(), QUOTAS, key=BY_CLIENT)(handler)


def application(decorate: Callable[..., Any] = plain, **of_part: Any) -> web.Application:
    """Return an application with the handlers, and with a limit on its sub-application."""
    app, part, runs = web.Application(), web.Application(), Runs()

    def handler(name: str) -> Callable[..., Any]:
        async def ran(request: web.Request) -> web.Response:
            return web.Response(text="ran", headers=runs.of(name, request.headers.get(CLIENT, "")))

        return decorate(ran)

    app.router.add_post("/login", handler("login"))
    app.router.add_get("/report", handler("report"))
    part.router.add_get(r"/users/{id:\d+}", handler("user"))
    if of_part:
        setup(part, **of_part)
    app.add_subapp("/v1", part)
    return app


def whole(**options: Any) -> web.Application:
    """Return an application with a limit on all requests."""
    app = application()
    setup(app, **{"limiter": AsyncLimiter(), "policy": QUOTAS, "key": BY_CLIENT, **options})
    return app


def by_document(attribute: str) -> web.Application:
    """Return an application with limits by a document."""
    app = application()
    setup(app, AsyncLimiter(document=document(attribute)))
    return app


def decorated() -> web.Application:
    """Return an application with limits on its handlers."""
    app = application(limited)
    setup(app)
    return app


class Views:
    """Handlers of a site that are methods of classes."""

    def __init__(self) -> None:
        self._runs = Runs()

    def view(self, name: str, method: str) -> type[web.View]:
        """Return a class of views with a limited method."""
        runs = self._runs

        @limited
        async def ran(view: web.View) -> web.Response:
            return web.Response(text="ran", headers=runs.of(name, view.request.headers.get(CLIENT, "")))

        methods = {method: ran, "head": ran} if method == "get" else {method: ran}
        return type("View", (web.View,), methods)


def class_based() -> web.Application:
    """Return an application with limits on the methods of its classes."""
    app, views = web.Application(), Views()
    setup(app)
    app.router.add_view("/login", views.view("login", "post"))
    app.router.add_view("/report", views.view("report", "get"))
    app.router.add_view(r"/v1/users/{id:\d+}", views.view("user", "get"))
    return app


def separate() -> web.Application:
    """Return an application with sub-applications and handlers of the same quotas."""
    app, limiter = web.Application(), AsyncLimiter()
    setup(app)

    async def ran(_request: web.Request) -> web.Response:
        return web.Response(text="ran")

    for name in ("a", "b"):
        part = web.Application()
        part.router.add_get("/x", ran)
        setup(part, limiter, ONCE, key=BY_CLIENT)
        app.add_subapp(f"/{name}", part)
        app.router.add_get(f"/handlers/{name}", limit(limiter, ONCE, key=BY_CLIENT)(ran))
    return app


SEPARATE = ["GET:/a/x", "GET:/b/x", "GET:/handlers/a", "GET:/handlers/b"]

SITES = {
    "global": (whole, HANDLERS),
    "methods": (lambda: whole(methods=["get", "post"]), HANDLERS),
    "path_rules": (lambda: by_document("path"), HANDLERS),
    "route_rules": (lambda: by_document("route"), HANDLERS),
    "router": (lambda: application(limiter=AsyncLimiter(), policy=QUOTAS, key=BY_CLIENT), "user"),
    "decorator": (decorated, HANDLERS),
    "class_based": (class_based, HANDLERS),
    "separate": (separate, ",".join(SEPARATE)),
}


async def main() -> None:
    """Serve the sites until standard input is closed."""
    runners = []
    for name, (make, handlers) in SITES.items():
        runner = web.AppRunner(make(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        print("listening", name, runner.addresses[0][1], handlers)
    print("version", "aiohttp", version("aiohttp"))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for runner in runners:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
