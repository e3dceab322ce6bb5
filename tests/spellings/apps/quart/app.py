"""Quart: limits of applications, blueprints and views."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "asgi"))

import quart
from polylimit import AsyncLimiter, asgi, keys
from polylimit.quart import RateLimit, limit
from sites import CLIENT, HANDLERS, QUOTAS, Runs, document, serve

if TYPE_CHECKING:
    from collections.abc import Callable

BY_CLIENT = keys.header(CLIENT)
ONCE = "1/hour fixed_window"


def plain(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view as it is."""
    return view


def limited(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view with a limit of its own."""
    return limit(AsyncLimiter(), QUOTAS, key=BY_CLIENT)(view)


def application(decorate: Callable[..., Any] = plain) -> tuple[quart.Quart, quart.Blueprint]:
    """Return an application with the handlers, and its blueprint, which is not registered yet."""
    app, part, runs = quart.Quart("site"), quart.Blueprint("part", "site"), Runs()

    def view(name: str) -> Callable[..., Any]:
        async def ran(**_parameters: Any) -> Any:
            return "ran", 200, runs.of(name, quart.request.headers.get(CLIENT, ""))

        return decorate(ran)

    app.add_url_rule("/login", "login", view("login"), methods=["POST"])
    app.add_url_rule("/report", "report", view("report"))
    part.add_url_rule("/users/<int:id>", "user", view("user"))
    return app, part


def registered(made: tuple[quart.Quart, quart.Blueprint]) -> quart.Quart:
    """Return an application with its blueprint."""
    app, part = made
    app.register_blueprint(part, url_prefix="/v1")
    return app


def whole(**options: Any) -> quart.Quart:
    """Return an application with a limit on all requests."""
    app = registered(application())
    RateLimit(app, **{"limiter": AsyncLimiter(), "policy": QUOTAS, "key": BY_CLIENT, **options})
    return app


def by_document(attribute: str) -> quart.Quart:
    """Return an application with limits by a document."""
    app = registered(application())
    RateLimit(app, AsyncLimiter(document=document(attribute)))
    return app


def in_front() -> Any:
    """Return an application with the middleware of ASGI around it, in front of the routing."""
    return asgi.RateLimitMiddleware(registered(application()), limiter=AsyncLimiter(document=document("path")))


def of_blueprint() -> quart.Quart:
    """Return an application with a limit on its blueprint."""
    app, part = application()
    RateLimit(part, AsyncLimiter(), QUOTAS, key=BY_CLIENT)
    return registered((app, part))


def decorated() -> quart.Quart:
    """Return an application with limits on its views."""
    app = registered(application(limited))
    RateLimit(app)
    return app


def separate() -> quart.Quart:
    """Return an application with blueprints and views of the same quotas."""
    app, limiter = quart.Quart("site"), AsyncLimiter()
    RateLimit(app)

    async def ran() -> str:
        return "ran"

    part = quart.Blueprint("part", "site")
    RateLimit(part, limiter, ONCE, key=BY_CLIENT)
    part.add_url_rule("/x", "x", ran)
    for name in ("a", "b"):
        app.register_blueprint(part, name=name, url_prefix=f"/{name}")
        app.add_url_rule(f"/views/{name}", f"view_{name}", limit(limiter, ONCE, key=BY_CLIENT)(ran))
    return app


SEPARATE = ["GET:/a/x", "GET:/b/x", "GET:/views/a", "GET:/views/b"]

SITES = {
    "global": (whole, HANDLERS),
    "methods": (lambda: whole(methods=["get", "post"]), HANDLERS),
    "path_rules": (lambda: by_document("path"), HANDLERS),
    "path_rules_in_front_of_routing": (in_front, HANDLERS),
    "route_rules": (lambda: by_document("route"), HANDLERS),
    "router": (of_blueprint, "user"),
    "decorator": (decorated, HANDLERS),
    "separate": (separate, ",".join(SEPARATE)),
}

if __name__ == "__main__":
    serve(SITES, {"Quart": version("Quart")})
