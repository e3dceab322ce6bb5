"""Services that stream and reserve, which the tests run under real servers: `flask_app` and `app`."""

import asyncio
import os
import time

import flask
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from polylimit import AsyncLimiter
from polylimit.fastapi import RateLimitMiddleware
from polylimit.flask import RateLimit

limiter = AsyncLimiter(os.environ["STORE"], {"model": "1 concurrent; 100/day fixed_window"})

flask_app = flask.Flask(__name__)
RateLimit(
    flask_app,
    limiter=limiter.blocking,
    policy="model",
    cost=40,
    key=lambda _request: "client",
    spent=lambda response: response.tokens,
)


@flask_app.get("/stream")
def flask_stream():
    def parts():
        while True:
            response.tokens += 1
            yield b"x" * 1000
            time.sleep(0.005)

    response = flask.Response(parts())
    response.tokens = 0
    return response


@flask_app.get("/short")
def flask_short():
    response = flask.Response("short")
    response.tokens = 3
    return response


app = FastAPI()
app.add_middleware(
    RateLimitMiddleware,
    limiter=limiter,
    policy="model",
    cost=40,
    key=lambda _request: "client",
    spent=lambda response: response.state.get("tokens"),
    websockets=True,
)


@app.get("/stream")
async def stream(request: Request):
    async def parts():
        request.state.tokens = 0
        while True:
            request.state.tokens += 1
            yield b"x" * 1000
            await asyncio.sleep(0.005)

    return StreamingResponse(parts())


@app.get("/short")
async def short(request: Request):
    request.state.tokens = 3
    return "short"


@app.websocket("/socket")
async def socket(websocket: WebSocket):
    await websocket.accept()
    websocket.state.tokens = 0
    async for _text in websocket.iter_text():
        websocket.state.tokens += 5
        await websocket.send_text("ok")
