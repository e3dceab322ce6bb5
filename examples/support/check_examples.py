"""Starts every example and sends requests: exactly its quota passes, alone and together, and its headers agree."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import sys
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from own_redis import Redis
from services import Service
from stores import local, patient

LIMIT = 20
# No window ends during the test.
QUOTA = f"{LIMIT}/hour sliding_log"
POLICY_FIELD = f'"demo";q={LIMIT};w=3600'
LIMIT_FIELD = re.compile(r'"demo";r=(\d+);t=\d+$')


def ask(port: int, path: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def statuses(ports: list[int], path: str, times: int) -> Counter[int]:
    """Send requests to the ports in turn, 8 at a time."""
    with ThreadPoolExecutor(8) as pool:
        return Counter(pool.map(lambda number: ask(ports[number % len(ports)], path)[0], range(times)))


def equal(got: object, wanted: object, what: str) -> None:
    """Raise with the difference, if there is one."""
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def exactly_the_quota(port: int) -> None:
    """Half of twice the limit passes."""
    equal(statuses([port], "/?user=alice", 2 * LIMIT), Counter({200: LIMIT, 429: LIMIT}), "statuses")


def header_fields(port: int) -> None:
    """Find the state of the limit in every response, and a problem document in a denial."""
    for number in range(LIMIT + 1):
        status, headers, body = ask(port, "/?user=bob")
        admitted = number < LIMIT
        equal(status, 200 if admitted else 429, "status")
        policy = headers["ratelimit-policy"] or ""
        equal(policy[: len(POLICY_FIELD)], POLICY_FIELD, "ratelimit-policy")
        state = LIMIT_FIELD.match(headers["ratelimit"] or "")
        equal(state and int(state[1]), max(LIMIT - 1 - number, 0), f"what is left in {headers['ratelimit']!r}")
        if admitted:
            equal(json.loads(body), {"hello": "world"}, "body")
    equal(headers.get_content_type(), "application/problem+json", "content-type")
    equal(json.loads(body)["violated-policies"], ["demo"], "violated-policies")
    wait = int(headers["retry-after"])
    equal(min(max(wait, 3500), 3600), wait, "retry-after, an hour less how long this took")


def key_without_user(port: int) -> None:
    """Count requests without a user as "demo"."""
    equal(statuses([port], "/", LIMIT // 2), Counter({200: LIMIT // 2}), "statuses")
    equal(statuses([port], "/?user=demo", LIMIT), Counter({200: LIMIT // 2, 429: LIMIT // 2}), "statuses")


def together(names: list[str], url: str) -> None:
    """All examples share one budget."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(Service(name, url, QUOTA)) for name in names]
        ports = [service.port() for service in running]
        # These requests count for another key than those below.
        for port in ports:
            equal(ask(port, "/?user=first")[0], 200, "status")
        equal(statuses(ports, "/?user=all", 3 * LIMIT), Counter({200: LIMIT, 429: 2 * LIMIT}), "statuses")


def main(names: list[str]) -> int:
    """Run the examples of these names, and count the results."""
    passed = failed = 0

    def test(name: str, run: object, *arguments: object) -> None:
        nonlocal passed, failed
        try:
            run(*arguments)
        except (AssertionError, OSError, RuntimeError, TypeError, ValueError, KeyError, http.client.HTTPException):
            failed += 1
            traceback.print_exc()
            print(f"test {name} ... FAILED", flush=True)
        else:
            passed += 1
            print(f"test {name} ... ok", flush=True)

    for name in names:
        with local() as url, Service(name, url, QUOTA) as service:
            for check in (exactly_the_quota, header_fields, key_without_user):
                test(f"{name}: {check.__name__}", lambda check=check: check(service.port()))
    with local() as url:
        test("together on the local store", together, names, url)
    with Redis() as redis:
        test("together on Redis", together, names, patient(redis.url))
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
