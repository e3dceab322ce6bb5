"""A Flask application that the tests run under a real server."""

import os

import flask
from flask_login import LoginManager, UserMixin
from polylimit import Limiter, keys
from polylimit.flask import RateLimit, limit

limiter = Limiter(
    os.environ["STORE"],
    {
        "api": "20/day fixed_window",
        "login": "3/day fixed_window",
        "small": "5/day",
        "strict": "1000/day",
        "upload": "100/day",
    },
    outage={} if os.environ["STORE"].startswith("local") else {"strict": "deny"},
)
by_client = keys.header("x-client")

app = flask.Flask(__name__)
app.secret_key = "tests"
login_manager = LoginManager(app)


@login_manager.request_loader
def load_user(request):
    name = request.headers.get("x-user")
    if name is None:
        return None
    user = UserMixin()
    user.id = name
    return user


RateLimit(
    app,
    limiter=limiter,
    policy="api",
    key=by_client,
    skip=lambda request: not request.path.startswith(("/api", "/missing")),
)


@app.get("/api")
def api():
    return "api"


@app.get("/api/small")
@limit(limiter, ["small", "upload"], key=by_client)
def small():
    return "small"


@app.get("/login/<password>")
@limit(limiter, "login", key=by_client, count=lambda response: response.status_code == 401, headers="both")
def login(password):
    return ("welcome", 200) if password == "right" else ("wrong", 401)


@app.get("/upload/<int:size>")
@limit(limiter, "upload", key=by_client, cost=lambda request: request.view_args["size"])
def upload(size):
    return str(size)


@app.get("/own")
@limit(
    limiter,
    "1/day",
    key=lambda request: request.headers["x-client"],
    on_denied=lambda request, denial: (f"{request.path}: {denial.problem.violated}", 418),
    headers="none",
)
def own():
    return "own"


@app.get("/strict")
@limit(limiter, "strict", key=by_client)
def strict():
    return "strict"


@app.get("/user")
@limit(limiter, "2/day fixed_window", key=keys.user())
def user():
    return "user"


@app.get("/stream")
@limit(limiter, "upload", key=by_client)
def stream():
    return flask.Response((f"{number}\n" for number in range(1000)), mimetype="text/plain")


blueprint = flask.Blueprint("shop", __name__, url_prefix="/shop")
RateLimit(blueprint, limiter=limiter, policy="small", key=by_client)


@blueprint.get("/")
def shop():
    return "shop"


app.register_blueprint(blueprint)
