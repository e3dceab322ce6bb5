"""Requests through a framework without a server: bare, with polylimit, and with the usual peer."""

from __future__ import annotations

import asyncio
import time

import flask
import flask_limiter
import slowapi
from fastapi import FastAPI, Request
from polylimit import AsyncLimiter, Limiter
from polylimit.fastapi import RateLimitMiddleware
from polylimit.flask import RateLimit
from slowapi.middleware import SlowAPIASGIMiddleware

HUGE = "1000000000/day"


def flask_apps(url):
    bare, ours, theirs = (flask.Flask(name) for name in ("bare", "ours", "theirs"))
    for app in (bare, ours, theirs):
        app.add_url_rule("/", view_func=lambda: "hello", endpoint="root")
    RateLimit(ours, limiter=Limiter(url or "memory:"), policy=HUGE)
    flask_limiter.Limiter(
        lambda: flask.request.remote_addr,
        app=theirs,
        default_limits=[HUGE],
        storage_uri=url or "memory://",
        headers_enabled=True,
    )
    return {"bare": bare, "polylimit": ours, "Flask-Limiter": theirs}


def fastapi_apps(url):
    bare, ours, theirs = (FastAPI() for _ in range(3))
    for app in (bare, ours, theirs):

        @app.get("/")
        async def root(request: Request):
            return "hello"

    ours.add_middleware(RateLimitMiddleware, limiter=AsyncLimiter(url or "memory:"), policy=HUGE)
    theirs.state.limiter = slowapi.Limiter(
        key_func=lambda request: request.client.host,
        default_limits=[HUGE],
        storage_uri=url or "memory://",
        headers_enabled=True,
    )
    theirs.add_middleware(SlowAPIASGIMiddleware)
    return {"bare": bare, "polylimit": ours, "slowapi": theirs}


def wsgi_round(app, seconds):
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": "/",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.url_scheme": "http",
        }
        statuses = []
        b"".join(app(environ, lambda status, headers: statuses.append(status)))  # noqa: B023
        assert statuses == ["200 OK"]
        count += 1
    return passed / count * 1e6


def asgi_round(app, seconds, concurrent):
    async def once():
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "headers": [],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "scheme": "http",
            "http_version": "1.1",
        }
        statuses = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            statuses.append(message.get("status"))

        await app(scope, receive, send)
        assert statuses[0] == 200

    async def main():
        count, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            await asyncio.gather(*(once() for _ in range(concurrent)))
            count += concurrent
        return passed / count * 1e6

    return asyncio.run(main())
