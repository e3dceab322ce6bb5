"""A FastAPI application that the tests run under a real server."""

import os

from fastapi import APIRouter, Depends, FastAPI, Request, Response, WebSocket
from fastapi.responses import StreamingResponse
from polylimit import AsyncLimiter, keys
from polylimit.fastapi import RateLimit, RateLimitMiddleware
from starlette.responses import PlainTextResponse

limiter = AsyncLimiter(
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


async def cost_of_path(request: Request) -> int:
    return int(request.path_params["size"])


app = FastAPI()
app.add_middleware(
    RateLimitMiddleware,
    limiter=limiter,
    policy="api",
    key=by_client,
    skip=lambda request: not request.url.path.startswith(("/api", "/missing")),
)


@app.get("/api")
async def api():
    return "api"


@app.get("/api/small", dependencies=[Depends(RateLimit(limiter, ["small", "upload"], key=by_client))])
def small():
    return "small"


failed = RateLimit(limiter, "login", key=by_client, count=lambda response: response.status_code == 401, headers="both")


@app.get("/login/{password}", dependencies=[Depends(failed)])
async def login(password: str):
    return Response("welcome", 200) if password == "right" else Response("wrong", 401)


@app.get("/upload/{size}", dependencies=[Depends(RateLimit(limiter, "upload", key=by_client, cost=cost_of_path))])
async def upload(size: int):
    return size


own_limit = RateLimit(
    limiter,
    "1/day",
    key=lambda request: request.headers["x-client"],
    on_denied=lambda request, denial: PlainTextResponse(f"{request.url.path}: {denial.problem.violated}", 418),
    headers="none",
)


@app.get("/own", dependencies=[Depends(own_limit)])
async def own():
    return "own"


@app.get("/strict", dependencies=[Depends(RateLimit(limiter, "strict", key=by_client))])
async def strict():
    return "strict"


@app.get("/stream", dependencies=[Depends(RateLimit(limiter, "upload", key=by_client))])
async def stream():
    return StreamingResponse((f"{number}\n" for number in range(1000)), media_type="text/plain")


@app.websocket("/api/echo", dependencies=[Depends(RateLimit(limiter, "small", key=by_client))])
async def echo(websocket: WebSocket):
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


router = APIRouter(prefix="/shop", dependencies=[Depends(RateLimit(limiter, "small", key=by_client))])


@router.get("/")
async def shop():
    return "shop"


app.include_router(router)

# An application without the middleware, and an ASGI application with a middleware of its own.
plain = FastAPI()


@plain.get("/")
async def root(_limited: None = Depends(RateLimit(limiter, "small", key=by_client))):
    return "plain"


app.mount("/plain", plain)


async def bare(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"bare"})


app.mount("/bare", RateLimitMiddleware(bare, limiter=limiter, policy="small", key=by_client))
bare_alone = RateLimitMiddleware(bare, limiter=limiter, policy="small", key=by_client)
