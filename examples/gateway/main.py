"""A gateway with FastAPI in front of a language model that streams tokens."""

import asyncio
import os
from collections.abc import AsyncIterator

import anyio
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from polylimit import AsyncLimiter, AsyncReservation

#: The most tokens that one answer may have.
MAX_TOKENS = 40
#: Seconds after which the slots and the tokens of a gateway that was killed come back.
TTL = float(os.environ.get("POLYLIMIT_TTL", "30"))

limiter = AsyncLimiter(
    os.environ.get("POLYLIMIT_URL", "local:gateway"),
    {"model": os.environ.get("POLYLIMIT_QUOTA", "4 concurrent; 10000/minute token_bucket")},
)
app = FastAPI()


async def model(tokens: int, delay: float) -> AsyncIterator[str]:
    """Stand for a language model, which takes its time for each token."""
    for number in range(tokens):
        await asyncio.sleep(delay)
        yield f"token{number}\n"


async def metered(reservation: AsyncReservation, answer: AsyncIterator[str]) -> AsyncIterator[str]:
    """Commit as many tokens as were sent, also to a client that leaves."""
    spent = 0
    try:
        async for token in answer:
            spent += 1
            yield token
    finally:
        # A client that has left has cancelled this task.
        with anyio.CancelScope(shield=True):
            await reservation.commit(spent)


@app.get("/")
async def complete(user: str = "demo", tokens: int = MAX_TOKENS, delay: float = 0.01) -> Response:
    """Reserve a slot and the most tokens that the answer may have, and commit those that it had."""
    reservation = await limiter.reserve(user, cost=MAX_TOKENS, ttl=TTL)
    if not reservation.allowed:
        return PlainTextResponse("Too many requests, or no tokens left.\n", 429)
    answer = model(min(tokens, MAX_TOKENS), delay)
    return StreamingResponse(metered(reservation, answer), media_type="text/plain")
