"""Flask: limits of applications, blueprints, views and methods of classes."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "wsgi"))

import flask
from flask.views import MethodView
from polylimit import Limiter, keys
from polylimit.flask import RateLimit, limit
from sites import CLIENT, QUOTAS, Runs, document, serve
from werkzeug.middleware.dispatcher import DispatcherMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable

HANDLERS = "login,report,user"
BY_CLIENT = keys.header(CLIENT)


class Handlers:
    """The handlers of a site, which count their executions."""

    def __init__(self) -> None:
        self._runs = Runs()

    def _run(self, name: str) -> Any:
        return "ran", 200, self._runs.of(name, flask.request.headers.get(CLIENT, ""))

    def login(self) -> Any:
        return self._run("login")

    def report(self) -> Any:
        return self._run("report")

    def user(self, id: int) -> Any:  # noqa: A002, ARG002 - named as in all applications
        return self._run("user")


def plain(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view as it is."""
    return view


def limited(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view with a limit of its own."""
    return limit(Limiter(), QUOTAS, key=BY_CLIENT)(view)


def application(decorate: Callable[..., Any] = plain, *, is_above: bool = False) -> tuple[flask.Flask, flask.Blueprint]:
    """Return an application with the handlers, and its blueprint, which is not registered yet."""
    app, part, handlers = flask.Flask("site"), flask.Blueprint("part", "site"), Handlers()
    routes = [
        (app.route("/login", methods=["POST"], endpoint="login"), handlers.login),
        (app.route("/report", endpoint="report"), handlers.report),
        (part.route("/users/<int:id>", endpoint="user"), handlers.user),
    ]
    for route, handler in routes:

        def view(_handler: Callable[..., Any] = handler, **arguments: Any) -> Any:
            return _handler(**arguments)

        if is_above:
            decorate(route(view))
        else:
            route(decorate(view))
    return app, part


def registered(made: tuple[flask.Flask, flask.Blueprint]) -> flask.Flask:
    """Return an application with its blueprint."""
    app, part = made
    app.register_blueprint(part, url_prefix="/v1")
    return app


def whole(**options: Any) -> flask.Flask:
    """Return an application with a limit on all requests."""
    app = registered(application())
    RateLimit(app, **{"limiter": Limiter(), "policy": QUOTAS, "key": BY_CLIENT, **options})
    return app


def by_document(attribute: str) -> flask.Flask:
    """Return an application with limits by a document."""
    app = registered(application())
    RateLimit(app, limiter=Limiter(document=document(attribute)))
    return app


def of_blueprint() -> flask.Flask:
    """Return an application with a limit on its blueprint."""
    app, part = application()
    RateLimit(part, limiter=Limiter(), policy=QUOTAS, key=BY_CLIENT)
    return registered((app, part))


def mount() -> Any:
    """Return an application in which another one is mounted, which has the limit."""
    app, inner, handlers = application()[0], flask.Flask("inner"), Handlers()
    inner.add_url_rule("/users/<int:id>", "user", handlers.user)
    RateLimit(inner, limiter=Limiter(), policy=QUOTAS, key=BY_CLIENT)
    return DispatcherMiddleware(app, {"/v1": inner})


def class_based(*, on_class: bool) -> flask.Flask:
    """Return an application of classes, whose limit is on the class or on its methods."""
    app, handlers = flask.Flask("site"), Handlers()
    of_method, of_class = (plain, [limited]) if on_class else (limited, [])

    class Login(MethodView):
        decorators = of_class

        @of_method
        def post(self) -> Any:
            return handlers.login()

    class Report(MethodView):
        decorators = of_class

        @of_method
        def get(self) -> Any:
            return handlers.report()

    class User(MethodView):
        decorators = of_class

        @of_method
        def get(self, id: int) -> Any:  # noqa: A002
            return handlers.user(id)

    app.add_url_rule("/login", view_func=Login.as_view("login"))
    app.add_url_rule("/report", view_func=Report.as_view("report"))
    part = flask.Blueprint("part", "site")
    part.add_url_rule("/users/<int:id>", view_func=User.as_view("user"))
    app.register_blueprint(part, url_prefix="/v1")
    return app


SEPARATE = [
    *("GET:/a/1", "GET:/b/1", "GET:/twice/1/x", "GET:/twice/2/x", "GET:/left/child/x", "GET:/right/child/x"),
    *("GET:/one/blueprint", "GET:/two/blueprint", "GET:/mounted/1/view", "GET:/mounted/2/view", "GET:/mounted/1/app"),
    *("GET:/mounted/2/app", "GET:/methods", "POST:/methods"),
]


def separate() -> Any:
    """Return an application with views, blueprints and mounted applications of the same quotas."""
    limiter, quotas = Limiter(), "1/hour fixed_window"
    app = flask.Flask("site")

    def ran(**_arguments: Any) -> str:
        return "ran"

    def own() -> Callable[..., Any]:
        return limit(limiter, quotas, key=BY_CLIENT)(ran)

    def blueprint(name: str, path: str) -> flask.Blueprint:
        part = flask.Blueprint(name, "site")
        part.add_url_rule(path, "view", own())
        return part

    app.register_blueprint(blueprint("a", "/<int:id>"), url_prefix="/a")
    app.register_blueprint(blueprint("b", "/<int:id>"), url_prefix="/b")
    twice = blueprint("twice", "/x")
    app.register_blueprint(twice, url_prefix="/twice/1")
    app.register_blueprint(twice, url_prefix="/twice/2", name="again")
    for name in ("left", "right"):
        parent = flask.Blueprint(name, "site")
        parent.register_blueprint(blueprint("child", "/x"), url_prefix="/child")
        app.register_blueprint(parent, url_prefix=f"/{name}")
    for name in ("one", "two"):
        part = flask.Blueprint(name, "site")
        part.add_url_rule("/blueprint", "view", ran)
        RateLimit(part, limiter=limiter, policy=quotas, key=BY_CLIENT)
        app.register_blueprint(part, url_prefix=f"/{name}")

    class Methods(MethodView):
        @limit(limiter, quotas, key=BY_CLIENT)
        def get(self) -> str:
            return "ran"

        @limit(limiter, quotas, key=BY_CLIENT)
        def post(self) -> str:
            return "ran"

    app.add_url_rule("/methods", view_func=Methods.as_view("methods"))
    mounts = {}
    for number in (1, 2):
        mounts[f"/mounted/{number}"] = inner = flask.Flask("inner")
        inner.add_url_rule("/view", "view", own())
        inner.add_url_rule("/app", "app", ran)
        RateLimit(inner, limiter=limiter, policy=quotas, key=BY_CLIENT, skip=lambda request: request.endpoint != "app")
    return DispatcherMiddleware(app, mounts)


SITES: dict[str, tuple[Callable[[], Any], str]] = {
    "global": (whole, HANDLERS),
    "methods": (lambda: whole(methods=["get", "post"]), HANDLERS),
    "path_rules": (lambda: by_document("path"), HANDLERS),
    "route_rules": (lambda: by_document("route"), HANDLERS),
    "router": (of_blueprint, "user"),
    "mount": (mount, "user"),
    "decorator": (lambda: registered(application(limited)), HANDLERS),
    "decorator_above": (lambda: registered(application(limited, is_above=True)), HANDLERS),
    "class_based": (lambda: class_based(on_class=False), HANDLERS),
    "class": (lambda: class_based(on_class=True), HANDLERS),
    "separate": (separate, ",".join(SEPARATE)),
}

if __name__ == "__main__":
    serve(
        lambda: {name: make() for name, (make, _) in SITES.items()},
        {name: handlers for name, (_, handlers) in SITES.items()},
        {"Flask": version("flask")},
    )
