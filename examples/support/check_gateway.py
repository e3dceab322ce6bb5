"""Two gateways of a language model share slots and tokens: exactly, also when one is killed or a client leaves."""

from __future__ import annotations

import http.client
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from own_redis import Redis
from polylimit import Decision, Limiter
from services import EXAMPLES, Service
from stores import patient

SLOTS = 4
MAX_TOKENS = 40
BUDGET = 1200
#: No window ends during the test.
QUOTA = f"{SLOTS} concurrent; {BUDGET}/hour fixed_window"
#: Seconds until the slots of a killed gateway come back. A gateway that lives renews every third of it.
TTL = 10
PATIENCE = 60


class Answer:
    """An answer that is read token by token."""

    def __init__(self, port: int, tokens: int, delay: float = 0.01) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.request("GET", f"/?user=tenant&tokens={tokens}&delay={delay}")
        self._response = self._connection.getresponse()
        self.status = self._response.status

    def next(self) -> bytes:
        """Wait for the next token."""
        return self._response.readline()

    def rest(self) -> int:
        """Read to the end, and return the number of tokens."""
        return len(self._response.read().splitlines())

    def leave(self) -> None:
        """Close the connection, wherever the answer is."""
        self._response.close()
        self._connection.close()


class Clients:
    """Clients that ask both gateways at once, and see how many are answered at a time and how many tokens they got."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._lock = Lock()
        self._active = 0
        self.most_active = self.tokens = self.answered = self.denied = 0

    def ask(self, number: int) -> None:
        """Ask one of the gateways for an answer of some length."""
        wanted = 1 + number * 7 % MAX_TOKENS
        answer = Answer(self._ports[number % len(self._ports)], wanted)
        if answer.status == 429:
            with self._lock:
                self.denied += 1
            answer.leave()
            return
        equal(answer.status, 200, "status")
        with self._lock:
            self._active += 1
            self.most_active = max(self.most_active, self._active)
        # A gateway gives the slot back after the last token, so it is taken until all others were read.
        tokens = sum(answer.next() != b"" for _ in range(wanted - 1))
        with self._lock:
            self._active -= 1
        tokens += answer.rest()
        answer.leave()
        equal(tokens, wanted, "tokens of an answer")
        with self._lock:
            self.tokens += tokens
            self.answered += 1

    def run(self, requests: int) -> None:
        """Send this number of requests, 8 at a time."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.ask, range(requests)))


def equal(got: object, wanted: object, what: str) -> None:
    """Raise with the difference, if there is one."""
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def require(what: str, *, holds: bool) -> None:
    """Raise unless it holds."""
    if not holds:
        raise AssertionError(what)


def state(limiter: Limiter) -> tuple[int, int]:
    """Return the free slots, and the tokens that are neither spent nor reserved."""
    slots, tokens = limiter.peek("tenant").quotas
    return slots.remaining, tokens.remaining


def until(limiter: Limiter, wanted: int, what: str) -> tuple[int, int]:
    """Wait until this number of slots is free."""
    end = time.monotonic() + PATIENCE
    while state(limiter)[0] != wanted and time.monotonic() < end:
        time.sleep(0.01)
    found = state(limiter)
    equal(found[0], wanted, f"free slots {what}")
    return found


def commits_are_exact(limiter: Limiter, ports: list[int]) -> None:
    """Tokens are charged as they were sent, and no more are answered at a time than there are slots."""
    before = state(limiter)[1]
    clients = Clients(ports)
    clients.run(24)
    equal(clients.answered + clients.denied, 24, "responses")
    require(f"1 to {SLOTS} answers at a time: {clients.most_active}", holds=0 < clients.most_active <= SLOTS)
    equal(state(limiter), (SLOTS, before - clients.tokens), "slots and tokens")


def clients_that_leave_pay_for_what_was_sent(limiter: Limiter, ports: list[int]) -> None:
    """Leave in the middle of an answer: the slot comes back, and the tokens that were not sent."""
    for port in ports:
        before = state(limiter)[1]
        answer = Answer(port, MAX_TOKENS, 1)
        equal(answer.next(), b"token0\n", "first token")
        equal(state(limiter), (SLOTS - 1, before - MAX_TOKENS), "slots and tokens while it streams")
        answer.leave()
        sent = before - until(limiter, SLOTS, "after the client has left")[1]
        require(f"{sent} tokens of {MAX_TOKENS} were sent", holds=0 < sent < MAX_TOKENS)


def killed_gateway_gives_back(limiter: Limiter, ports: list[int], killed: Service) -> None:
    """Kill a gateway in the middle of its answers: its slots and tokens come back by the ttl."""
    before = state(limiter)[1]
    answers = [Answer(ports[1], MAX_TOKENS, 1) for _ in range(SLOTS)]
    for answer in answers:
        equal(answer.next(), b"token0\n", "first token")
    denied = Answer(ports[0], 1)
    denied.leave()
    equal(denied.status, 429, "status while all slots are taken")
    equal(state(limiter), (0, before - SLOTS * MAX_TOKENS), "slots and tokens while all slots are taken")
    killed.process.kill()
    killed.process.wait(PATIENCE)
    slots_come_back(limiter, limiter.peek("tenant"))
    equal(state(limiter), (SLOTS, before), "slots and tokens after the ttl")
    for answer in answers:
        answer.leave()
    clients = Clients(ports[:1])
    clients.run(4)
    equal(state(limiter), (SLOTS, before - clients.tokens), "slots and tokens of the other gateway")


def slots_come_back(limiter: Limiter, denied: Decision) -> None:
    """Wait for the slots; the store's own time says when the first one comes."""
    require("all slots are taken after the gateway was killed", holds=not denied.allowed)
    require(f"a slot comes back in {denied.retry_after} s, at most {TTL}", holds=0 < denied.retry_after <= TTL)
    until(limiter, SLOTS, "after the ttl")


def budget_is_never_exceeded(limiter: Limiter, ports: list[int]) -> None:
    """Answers go on until the tokens are spent: no more are charged than there are."""
    clients = Clients(ports)
    before = state(limiter)[1]
    while clients.denied < 8 or state(limiter)[1] >= MAX_TOKENS:
        clients.run(16)
    equal(state(limiter), (SLOTS, before - clients.tokens), "slots and tokens")
    require(f"{clients.tokens} tokens of {before}", holds=clients.tokens <= before)


def main() -> int:
    """Run the checks one after the other on one budget, and count the results."""
    passed = failed = 0

    def test(run: object, *arguments: object) -> None:
        nonlocal passed, failed
        name = f"gateway: {run.__name__}"
        try:
            run(*arguments)
        except (AssertionError, OSError, RuntimeError, TypeError, ValueError, http.client.HTTPException):
            failed += 1
            traceback.print_exc()
            print(f"test {name} ... FAILED", flush=True)
        else:
            passed += 1
            print(f"test {name} ... ok", flush=True)

    command = str(EXAMPLES / "gateway" / "run")
    with Redis() as redis:
        url = patient(redis.url)

        def gateway(framework: str) -> Service:
            return Service("gateway", url, QUOTA, command=[command, framework], POLYLIMIT_TTL=str(TTL))

        with (
            Limiter(url, {"model": QUOTA}) as limiter,
            gateway("fastapi") as fastapi,
            gateway("express") as express,
        ):
            ports = [fastapi.port(), express.port()]
            test(commits_are_exact, limiter, ports)
            test(clients_that_leave_pay_for_what_was_sent, limiter, ports)
            test(killed_gateway_gives_back, limiter, ports, express)
            test(budget_is_never_exceeded, limiter, ports[:1])
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed;")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
