"""A Flask service whose requests are limited by the extension of polylimit."""

import os

from flask import Flask, Request
from polylimit import Limiter
from polylimit.flask import RateLimit

limiter = Limiter(
    os.environ.get("POLYLIMIT_URL", "local:demo"),
    {"demo": os.environ.get("POLYLIMIT_QUOTA", "100/minute")},
)


def user(request: Request) -> str:
    """Return the key: the query parameter "user", or "demo"."""
    return request.args.get("user", "demo")


app = Flask(__name__)
RateLimit(app, limiter=limiter, key=user)


@app.get("/")
def hello() -> dict[str, str]:
    return {"hello": "world"}
