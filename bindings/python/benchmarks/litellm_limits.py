"""How many tokens two processes of LiteLLM's proxy admit under 100,000 a minute: its own limiter and polylimit.

Run it with the version of LiteLLM that the tests use:

    python versions.py run litellm newest -- python benchmarks/litellm_limits.py

64 callers send streams of one team at once, each of 3,000 tokens: 192,000 in total. One team names that bound in its
requests (`max_tokens`), another names none, so that the limiter has to guess: polylimit takes 1,000. After a pause of
3 seconds each sends as much again. Both limiters share one Redis. A figure is the median of three rounds, each with new
processes and an empty Redis.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from redis_server import RedisServer
from test_litellm import Model, proxy

LIMIT = 100_000
TOKENS = 3_000
CALLERS = 64
CALLER = """
import os
from litellm.proxy._types import UserAPIKeyAuth

async def caller(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, team_id=api_key%s)
"""
POLYLIMIT = f"""
from polylimit import AsyncLimiter
from polylimit.litellm import RateLimits

limiter = AsyncLimiter(os.environ["STORE"], {{"tokens": "{LIMIT}/minute fixed_window"}})
limits = RateLimits(limiter, {{"tokens": "tokens"}})
"""
MODELS = """
model_list:
  - model_name: model
    litellm_params: {model: openai/fake, api_base: "%s", api_key: none, max_retries: 0}
general_settings: {custom_auth: proxy_limits.caller}
litellm_settings:
"""


async def crowd(urls: list[str], fields: dict[str, int]) -> int:
    """Send a stream of each caller; return how many were admitted."""
    body = {"model": "model", "messages": [{"role": "user", "content": str(TOKENS)}], "stream": True, **fields}
    async with httpx.AsyncClient(timeout=120, headers={"authorization": f"Bearer team-{len(fields)}"}) as client:
        asked = [client.post(f"{urls[n % 2]}/v1/chat/completions", json=body) for n in range(CALLERS)]
        return sum(response.status_code == 200 for response in await asyncio.gather(*asked))


def measure(program: str, settings: str, redis: RedisServer, model: Model) -> list[int]:
    """Return the tokens that were admitted after each wave of callers: with a bound, and without one."""
    folder = Path(tempfile.mkdtemp(prefix="polylimit-litellm-"))
    (folder / "proxy_limits.py").write_text(program)
    (folder / "config.yaml").write_text(MODELS % model.url + settings)
    redis.command("FLUSHALL")
    try:
        with (
            (folder / "log").open("ab") as log,
            proxy(folder, redis.url, log) as one,
            proxy(folder, redis.url, log) as other,
        ):
            # Both waves are in one window of a minute.
            if time.time() % 60 > 20:
                time.sleep(60.5 - time.time() % 60)
            waves = []
            for _ in range(2):
                waves.append([asyncio.run(crowd([one, other], fields)) for fields in ({"max_tokens": TOKENS}, {})])
                time.sleep(3)
    finally:
        shutil.rmtree(folder)
    (bounded, unbounded), (more, more_unbounded) = waves
    return [TOKENS * streams for streams in (bounded, bounded + more, unbounded, unbounded + more_unbounded)]


def main() -> None:
    redis, model = RedisServer(), Model()
    own = f"  cache: true\n  cache_params: {{type: redis, host: 127.0.0.1, port: {redis.port}}}\n"
    rows = {
        "LiteLLM": (CALLER % f", tpm_limit={LIMIT}", own),
        "polylimit": (CALLER % "" + POLYLIMIT, "  callbacks: proxy_limits.limits\n"),
    }
    figures: dict[str, list[list[int]]] = {name: [] for name in rows}
    try:
        for _ in range(3):
            for name, (program, settings) in rows.items():
                figures[name].append(measure(program, settings, redis, model))
                print(f"{name}: {figures[name][-1]}", file=sys.stderr, flush=True)
    finally:
        model.close()
        redis.close()
    print(f"tokens admitted of {LIMIT:,} a minute, after the first and the second wave of {CALLERS} callers")
    print("            with max_tokens       without")
    for name, rounds in figures.items():
        medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
        print(f"{name:10}" + "".join(f" {tokens:10,.0f}" for tokens in medians))


main()
