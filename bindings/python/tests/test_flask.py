"""Flask: every way to a view counts, whatever decorates it and wherever it is mounted."""

import subprocess
import sys

import flask
import pytest
from flask.views import MethodView, View
from polylimit import Limiter, keys
from polylimit.flask import RateLimit, exempt, limit
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

POLICIES = {"app": "2/day fixed_window", "own": "4/day fixed_window"}


@pytest.fixture
def limiter():
    return Limiter("memory:", POLICIES)


@pytest.fixture
def app():
    app = flask.Flask(__name__)
    app.testing = True
    return app


def statuses(app, path="/", method="GET", times=6, **arguments):
    client = app.test_client()
    found = []
    for _ in range(times):
        with client.open(path, method=method, **arguments) as response:
            found.append(response.status_code)
    return found


def admitted(times, of=6):
    return [200] * times + [429] * (of - times)


def test_limit_above_the_route_is_used(app, limiter):
    @limit(limiter, "own")
    @app.get("/")
    def view():
        return "view"

    assert statuses(app) == admitted(4)


def test_several_limits_above_the_route_are_used(app, limiter):
    @limit(limiter, "own")
    @limit(limiter, "app")
    @app.get("/")
    def view():
        return "view"

    assert statuses(app) == admitted(2)
    assert limiter.peek("127.0.0.1", "own").remaining == 2


def test_limit_above_the_route_of_a_blueprint_is_used(app, limiter):
    blueprint = flask.Blueprint("part", __name__)

    @limit(limiter, "own")
    @blueprint.get("/")
    def view():
        return "view"

    app.register_blueprint(blueprint, url_prefix="/part")
    assert statuses(app, "/part/") == admitted(4)


def test_exempt_and_override_above_the_route_are_used(app, limiter):
    RateLimit(app, limiter=limiter, policy="app")

    @exempt
    @app.get("/exempt")
    def free():
        return "free"

    @limit(limiter, "own", override=True)
    @app.get("/override")
    def own():
        return "own"

    assert statuses(app, "/exempt") == admitted(6)
    assert statuses(app, "/override") == admitted(4)


def free_and_limited():
    return "view"


def test_view_that_is_registered_with_and_without_a_limit_stays_as_it_is(app, limiter):
    app.add_url_rule("/free", "free", free_and_limited)
    app.add_url_rule("/limited", "limited", limit(limiter, "own")(free_and_limited))
    assert statuses(app, "/free") == admitted(6)
    assert statuses(app, "/limited") == admitted(4)


def test_function_that_is_limited_elsewhere_stays_as_it_is(app, limiter):
    limit(limiter, "own")(free_and_limited)
    app.add_url_rule("/", "free", free_and_limited)
    assert statuses(app) == admitted(6)


def test_methods_of_a_class_are_exempt_and_override(app, limiter):
    RateLimit(app, limiter=limiter, policy="app")

    class Own(MethodView):
        @limit(limiter, "own", override=True)
        def get(self):
            return "get"

        @exempt
        def post(self):
            return "post"

        def put(self):
            return "put"

    app.add_url_rule("/", view_func=Own.as_view("own"))
    assert statuses(app) == admitted(4)
    assert statuses(app, method="HEAD", times=1) == [429]
    assert statuses(app, method="POST") == admitted(6)
    assert statuses(app, method="PUT") == admitted(2)


def test_limits_of_a_class(app, limiter):
    RateLimit(app, limiter=limiter, policy="app")

    @limit(limiter, "own", override=True)
    class Decorated(MethodView):
        def get(self):
            return "get"

    class Listed(View):
        decorators = (exempt,)

        def dispatch_request(self):
            return "any"

    class Late(MethodView):
        async def get(self):
            return "get"

    for number, owner in enumerate((Decorated, Listed, Late)):
        app.add_url_rule(f"/{number}", view_func=owner.as_view(f"view{number}"))
    exempt(Late)
    assert statuses(app, "/0") == admitted(4)
    assert statuses(app, "/1") == admitted(6)
    if not has_async():
        pytest.skip("Flask's extra for asynchronous views, asgiref, is not installed")
    assert statuses(app, "/2") == admitted(6)


def has_async():
    try:
        import asgiref.sync  # noqa: F401
    except ImportError:
        return False
    return True


def test_resources_of_flask_restx(app, limiter):
    flask_restx = pytest.importorskip("flask_restx", reason="Flask-RESTX is not installed")
    RateLimit(app, limiter=limiter, policy="app")
    api = flask_restx.Api(app, doc=False)

    @limit(limiter, "own", override=True)
    @api.route("/above")
    class Above(flask_restx.Resource):
        def get(self):
            return "above"

    @api.route("/below")
    @exempt
    class Below(flask_restx.Resource):
        def get(self):
            return "below"

    @api.route("/method")
    class OfMethod(flask_restx.Resource):
        @exempt
        def get(self):
            return "method"

        def post(self):
            return "method"

    @api.route("/listed")
    class Listed(flask_restx.Resource):
        method_decorators = (limit(limiter, "5/day fixed_window", override=True),)

        def get(self):
            return "listed"

    @api.route("/listed/exempt")
    class ListedExempt(flask_restx.Resource):
        method_decorators = (exempt,)

        def get(self):
            return "listed"

    assert statuses(app, "/above") == admitted(4)
    assert statuses(app, "/below") == admitted(6)
    assert statuses(app, "/method") == admitted(6)
    assert statuses(app, "/method", "POST") == admitted(2)
    assert statuses(app, "/listed") == admitted(5)
    assert statuses(app, "/listed/exempt") == admitted(6)


@pytest.mark.parametrize("given", [flask.Flask("a"), flask.Blueprint("a", __name__), dict, "text"])
def test_what_is_no_view_is_refused(limiter, given):
    with pytest.raises(TypeError, match=r"the decorated view is .*: allowed is a function, a class of flask.views"):
        limit(limiter, "own")(given)


def test_methods_of_a_class_have_budgets_of_their_own(app, limiter):
    class Own(MethodView):
        @limit(limiter, "1/day fixed_window")
        def get(self):
            return "get"

        @limit(limiter, "1/day fixed_window")
        def post(self):
            return "post"

    app.add_url_rule("/", view_func=Own.as_view("own"))
    assert statuses(app, times=2) == [200, 429]
    assert statuses(app, method="HEAD", times=1) == [429]
    assert statuses(app, method="POST", times=2) == [200, 429]


def test_view_with_several_endpoints_has_one_budget(app, limiter):
    view = limit(limiter, "2/day fixed_window")(lambda **_arguments: "view")
    app.add_url_rule("/a", "a", view)
    app.add_url_rule("/b/<int:number>", "b", view)
    assert [statuses(app, path, times=1) for path in ("/a", "/b/1", "/a", "/b/2")] == [[200], [200], [429], [429]]


def mounted(limiter):
    """Applications and blueprints with the same quotas, and the paths of their views."""
    quotas = "1/day fixed_window"

    def blueprint(name):
        part = flask.Blueprint(name, __name__)
        RateLimit(part, limiter=limiter, policy=quotas)
        part.get("/x", endpoint="x")(limit(limiter, quotas)(lambda: "x"))
        return part

    outer, inner, other = flask.Flask("outer"), flask.Flask("inner"), flask.Flask("inner")
    for app in (outer, inner, other):
        RateLimit(app, limiter=limiter, policy=quotas, skip=lambda request: request.path != "/app")
        app.get("/app", endpoint="app")(lambda: "app")
        app.register_blueprint(blueprint("one"), url_prefix="/one")
    twice = blueprint("twice")
    outer.register_blueprint(twice, url_prefix="/v1", name="v1")
    outer.register_blueprint(twice, url_prefix="/v2", name="v2")
    for name in ("left", "right"):
        parent = flask.Blueprint(name, __name__)
        parent.register_blueprint(blueprint("child"), url_prefix="/child")
        outer.register_blueprint(parent, url_prefix=f"/{name}")
    paths = ["/one/x", "/v1/x", "/v2/x", "/left/child/x", "/right/child/x", "/app"]
    paths += [f"/{mount}/{path}" for mount in ("inner", "other") for path in ("app", "one/x")]
    return DispatcherMiddleware(outer, {"/inner": inner, "/other": other}), paths


def test_mounts_have_budgets_of_their_own_which_are_the_same_in_every_process(limiter):
    app, paths = mounted(limiter)
    client = Client(app)
    assert [client.get(path).status_code for path in paths] == [200] * len(paths)
    assert [client.get(path).status_code for path in paths] == [429] * len(paths)
    # Another process meets them in another order.
    again = Client(mounted(limiter)[0])
    assert [again.get(path).status_code for path in reversed(paths)] == [429] * len(paths)


ROUTES = {
    "/a/1": "/a/{number}",
    "/b/x/y": "/b/{*rest}",
    "/v1/users/7": "/v1/users/{id}",
    "/outer/inner/k-1/": "/outer/inner/{key}-{number}/",
    "/length/abc": "/length/{text}",
    "/any/two": "/any/{which}",
}


@pytest.mark.parametrize("mount", ["", "/mounted/deep"])
def test_route_has_all_prefixes(mount):
    document = """
    polylimit = 1
    [policies.by_route]
    quotas = "1/day fixed_window"
    [[rules]]
    apply = [{ policy = "by_route", key = "{route}" }]
    """
    limiter = Limiter("memory:", document=document)
    app = flask.Flask(__name__)
    RateLimit(app, limiter=limiter)

    def view(**_arguments):
        return "view"

    app.add_url_rule("/a/<int:number>", "a", view)
    app.add_url_rule("/b/<path:rest>", "b", view)
    app.add_url_rule("/length/<string(minlength=2, maxlength=5):text>", "length", view)
    app.add_url_rule("/any/<any('one', 'two'):which>", "any", view)
    users = flask.Blueprint("users", __name__, url_prefix="/users")
    users.add_url_rule("/<int:id>", "user", view)
    outer, inner = (flask.Blueprint(name, __name__, url_prefix=f"/{name}") for name in ("outer", "inner"))
    inner.add_url_rule("/<key>-<int:number>/", "pair", view)
    outer.register_blueprint(inner)
    app.register_blueprint(users, url_prefix="/v1/users")
    app.register_blueprint(outer)
    client = Client(DispatcherMiddleware(flask.Flask("around"), {mount: app}) if mount else app)
    for path, route in ROUTES.items():
        client.get(mount + path)
        assert limiter.peek(mount + route, "by_route").remaining == 0, path


def test_unknown_path_has_no_route(app):
    document = """
    polylimit = 1
    [policies.known]
    quotas = "1/day fixed_window"
    [[rules]]
    match = { route = "*" }
    apply = [{ policy = "known", key = "all" }]
    """
    RateLimit(app, limiter=Limiter("memory:", document=document))
    app.get("/")(lambda: "view")
    assert statuses(app, "/unknown", times=3) == [404] * 3
    assert statuses(app, times=2) == [200, 429]


def test_attribute_of_the_program_is_the_route():
    document = """
    polylimit = 1
    [policies.by_route]
    quotas = "1/day fixed_window"
    [[rules]]
    match = { route = "mine" }
    apply = [{ policy = "by_route", key = "all" }]
    """
    limiter = Limiter("memory:", document=document)
    app = flask.Flask(__name__)
    RateLimit(app, limiter=limiter, attributes=lambda _request: {"route": "mine"})
    app.get("/")(lambda: "view")
    assert statuses(app, times=2) == [200, 429]


@pytest.mark.parametrize("server_tells", [True, False])
def test_path_rule_sees_the_path_of_the_router(server_tells):
    document = """
    polylimit = 1
    [policies.login]
    quotas = "1/day fixed_window"
    [[rules]]
    match = { path = "/v1/login" }
    apply = [{ policy = "login", key = "all" }]
    """
    app = flask.Flask(__name__)
    RateLimit(app, limiter=Limiter("memory:", document=document))
    app.get("/v1/login")(lambda: "login")
    # The server decodes the path, and passes on the line of the request as well.
    line = {"RAW_URI": "/v1%2Flogin", "REQUEST_URI": "/v1%2Flogin"} if server_tells else {}
    assert statuses(app, "/v1/login", times=2, environ_overrides=line) == [200, 429]


def test_views_only_leaves_out_static_files_and_unknown_paths(limiter, tmp_path):
    (tmp_path / "a.css").write_text("a")
    app = flask.Flask(__name__, static_folder=str(tmp_path), static_url_path="/files")
    part = flask.Blueprint("part", __name__, url_prefix="/part", static_folder=str(tmp_path), static_url_path="/static")
    app.get("/")(lambda: "view")
    part.get("/x", endpoint="static_x")(lambda: "x")
    app.register_blueprint(part)
    RateLimit(app, limiter=limiter, policy="app", views_only=True)
    for path, status in (("/files/a.css", 200), ("/part/static/a.css", 200), ("/unknown", 404)):
        assert statuses(app, path) == [status] * 6
    assert statuses(app, method="POST", times=3) == [405] * 3
    assert statuses(app, times=1) + statuses(app, "/part/x", times=2) == [200, 200, 429]


def test_view_that_is_called_static_is_limited(limiter):
    app = flask.Flask(__name__, static_folder=None)
    app.get("/", endpoint="static")(lambda: "view")
    RateLimit(app, limiter=limiter, policy="app", views_only=True)
    assert statuses(app) == admitted(2)


PREFLIGHT = {"origin": "https://app.example", "access-control-request-method": "GET"}


@pytest.mark.parametrize("options", [{"policy": "2/day fixed_window"}, {"policy": "app", "methods": ["get"]}, {}])
def test_head_counts_with_get(app, options):
    document = """
    polylimit = 1
    [policies.p]
    quotas = "2/day fixed_window"
    [[rules]]
    match = { method = "GET", path = "/" }
    apply = [{ policy = "p", key = "all" }]
    """
    limiter = Limiter("memory:", POLICIES) if options else Limiter("memory:", document=document)
    RateLimit(app, limiter=limiter, **options)
    app.get("/")(lambda: "view")
    assert statuses(app, times=1) == [200]
    assert statuses(app, method="HEAD", times=2) == [200, 429]
    assert statuses(app, times=1) == [429]


def test_head_counts_with_get_in_a_limit_of_a_view(app, limiter):
    app.get("/")(limit(limiter, "1/day fixed_window", methods="get")(lambda: "view"))
    app.get("/apart", endpoint="apart")(limit(limiter, "own", methods=["GET"], separate_head=True)(lambda: "view"))
    assert statuses(app, method="HEAD", times=2) == [200, 429]
    assert statuses(app, "/apart", "HEAD") == admitted(6)


@pytest.mark.parametrize("cors", ["first", "last", "none"])
@pytest.mark.parametrize("options", [{}, {"key": keys.header("origin")}])
def test_preflights_do_not_count(app, limiter, cors, options):
    flask_cors = pytest.importorskip("flask_cors", reason="Flask-Cors is not installed")
    if cors == "first":
        flask_cors.CORS(app)
    RateLimit(app, limiter=limiter, policy="app", **options)
    if cors == "last":
        flask_cors.CORS(app)
    app.post("/")(lambda: "view")
    assert statuses(app, method="OPTIONS", headers=PREFLIGHT) == admitted(6)
    origin = {"headers": {"origin": PREFLIGHT["origin"]}}
    assert statuses(app, method="POST", **origin) == admitted(2)
    assert statuses(app, method="OPTIONS", headers=PREFLIGHT) == admitted(6)
    # Any other request with this method does count.
    assert statuses(app, method="OPTIONS", times=1, **origin) == [429]
    denied = app.test_client().post("/", **origin)
    allowed = denied.headers.getlist("access-control-allow-origin")
    # Versions of the extension differ.
    assert allowed in ([[]] if cors == "none" else [["*"], ["https://app.example"]])


def test_preflights_count_where_a_limit_says_so_or_is_of_the_handler(app, limiter):
    RateLimit(app, limiter=limiter, policy="app", count_preflights=True, skip=lambda request: request.path != "/")
    app.get("/")(lambda: "view")

    @app.route("/own", methods=["OPTIONS"])
    @limit(limiter, "own")
    def own():
        return "own"

    assert statuses(app, method="OPTIONS", headers=PREFLIGHT) == admitted(2)
    assert statuses(app, "/own", "OPTIONS", headers=PREFLIGHT) == admitted(4)


def own_response(_request, _denial):
    return "denied", 429


@pytest.mark.parametrize("with_extension", [True, False])
@pytest.mark.parametrize("on_denied", [own_response, None])
def test_denials_have_the_fields_of_cors(app, limiter, with_extension, on_denied):
    flask_cors = pytest.importorskip("flask_cors", reason="Flask-Cors is not installed")
    RateLimit(app, limiter=limiter, policy="app", cors_origins=["https://app.example"], on_denied=on_denied)
    if with_extension:
        flask_cors.CORS(app, origins=["https://app.example", "https://other.example"])
    app.get("/")(lambda: "view")
    statuses(app, times=2)
    client = app.test_client()
    denied = client.get("/", headers={"origin": "https://app.example"})
    assert denied.status_code == 429
    assert denied.headers.getlist("access-control-allow-origin") == ["https://app.example"]
    assert "ratelimit" in denied.headers["access-control-expose-headers"].lower()
    assert "origin" in ",".join(denied.headers.getlist("vary")).lower()
    other = client.get("/", headers={"origin": "https://other.example"})
    assert other.headers.getlist("access-control-allow-origin") == ["https://other.example"] * with_extension


@pytest.mark.parametrize("key", [lambda _request: "", keys.header("x-key"), keys.cookie("key"), keys.user()])
def test_empty_key_is_missing(app, limiter, key):
    RateLimit(app, limiter=limiter, policy="app", key=key, missing_key="refuse")
    app.get("/")(lambda: "view")
    given = {"headers": {"x-key": "", "cookie": "key="}, "environ_overrides": {"REMOTE_USER": ""}}
    assert statuses(app, times=1, **given) == [400]


def test_old_version_is_refused():
    program = """
import importlib.metadata
importlib.metadata.version = lambda _package: "2.2.5"
try:
    import polylimit.flask
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "Flask 2.2.5 is installed, allowed is 2.3 or newer: upgrade it, such as by "
        'pip install --upgrade "polylimit[flask]"\n'
    )


def test_limiter_and_policy_may_be_given_by_position():
    app = flask.Flask(__name__)
    limits = RateLimit(app, Limiter(policies={"api": "1/hour fixed_window"}), "api")
    app.add_url_rule("/", view_func=lambda: "ran")
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]
    assert repr(limits) == "RateLimit(Limiter(api: 1/hour fixed_window), 'api')"
    with pytest.raises(TypeError, match="limiter is of type NoneType: allowed is a Limiter of polylimit"):
        RateLimit(app)
