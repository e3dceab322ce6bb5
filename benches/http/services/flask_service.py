"""A Flask application with the middleware that the environment selects: ``VARIANT``, ``STORE``."""

import os

from flask import Flask, Response

VARIANT, STORE = os.environ["VARIANT"], os.environ["STORE"]
QUOTA = "1000000000/day"

app = Flask(__name__)

if VARIANT == "round_trip":
    import redis

    client = redis.Redis.from_url(STORE)

    @app.get("/")
    def hello() -> str:
        client.get("missing")
        return "hello"

else:

    @app.get("/")
    def hello() -> str:
        return "hello"


if VARIANT == "fields":

    @app.after_request
    def add_constant_fields(response: Response) -> Response:
        response.headers["ratelimit-policy"] = '"all";q=1000000000;w=86400'
        response.headers["ratelimit"] = '"all";r=999999999;t=86400'
        return response

elif VARIANT == "polylimit":
    import polylimit
    from polylimit.flask import RateLimit

    RateLimit(app, limiter=polylimit.Limiter(STORE), policy=QUOTA)
elif VARIANT == "peer":
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    Limiter(
        get_remote_address,
        app=app,
        default_limits=[QUOTA],
        storage_uri=STORE.replace("memory:", "memory://"),
        headers_enabled=True,
    )
