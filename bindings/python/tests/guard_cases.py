"""Runs the cases of `guard.json` and its neighbours in `tests/conformance` through services of frameworks."""

import contextlib
import json
import os
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from polylimit import InvalidArgumentError, Limiter, ManualClock
from redis_server import until

FOLDER = Path(__file__).parents[3] / "tests" / "conformance"
FILES = [FOLDER / f"guard{name}.json" for name in ("", "_reservations", "_meters", "_waiting")]
CASES = [case for file in FILES for case in json.loads(file.read_text(encoding="utf-8"))["cases"]]


#: The name of a local store that cannot be opened.
BROKEN = f"guard-{os.getpid()}"


class Stores:
    """The limiters of a case, by the name of their store."""

    def __init__(self, case, limiter_class):
        self._case = case
        self._class = limiter_class
        self.clock = ManualClock(now=1_789_948_800)
        self._made = {}

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name):
        policies = self._case.get("policies", {})
        if name == "memory":
            return self._class(policies=policies, clock=self.clock)
        if name == "down":
            # Nothing listens on port 1.
            outage = dict.fromkeys(policies, self._case["outage"])
            return self._class("redis://127.0.0.1:1?doctor_after=0", policies, outage=outage)
        return self._class(f"local:{BROKEN}", policies)


def policy_option(given, header):
    of = given.get("policies_of")
    if of is None:
        return {"policy": given["policy"]} if "policy" in given else {}

    def policy_of(request):
        plan = header(request, of["header"])
        return given.get("policy") if plan is None else of["plans"][plan]

    return {"policy": policy_of}


def options_of(case, given, stores, service):
    """The options of a guard of a service."""
    options = {
        "limiter": stores[given.get("store", case.get("store", "memory"))],
        **policy_option(given, service.header),
        **timed_options(given, service.response_header),
    }

    def of_header(read, convert=str):
        header = service.header
        return lambda request: None if header(request, read) is None else convert(header(request, read))

    for name, value in given.items():
        if name == "key_parts":
            options["key"] = value
        elif name in ("key", "skip"):
            options[name] = of_header(value["header"])
        elif name == "cost" and isinstance(value, dict):
            options[name] = of_header(value["header"], int)
        elif name == "count":
            options[name] = lambda response, of=value: (
                of.get("status_from", 0) <= service.status_of(response) < of.get("status_below", 600)
            )
        elif name == "on_denied":
            options[name] = lambda _request, _denial, of=value: service.teapot(of["status"], of["body"])
        elif name == "on_outage":
            verdict = {"admit": True, "deny": False, "leave": None}[value]
            options[name] = lambda _request, _outage, verdict=verdict: verdict
        elif name not in ("policy", "policies_of", "store", "costs", "spent", "ttl_ms", "wait_ms"):
            options[name] = value
    return options


def timed_options(given, response_header):
    options = {}
    if isinstance(given.get("spent"), str):
        options["spent"] = given["spent"]
    elif isinstance(given.get("spent"), list):
        options["spent"] = dict(zip(given["policy"], given["spent"], strict=True))
    elif "spent" in given:

        def spent(response):
            units = response_header(response, given["spent"]["header"])
            return None if units is None else int(units)

        options["spent"] = spent
    if "costs" in given:
        options["cost"] = dict(zip(given["policy"], given["costs"], strict=True))
    if "ttl_ms" in given:
        options["ttl"] = timedelta(milliseconds=given["ttl_ms"])
    if "wait_ms" in given:
        options["wait"] = given["wait_ms"] / 1000
    return options


class Service:
    """A service of one case; `limiter_class` is the class of its limiters."""

    limiter_class = Limiter

    def __init__(self, case):
        self.handled = False
        stores = Stores(case, self.limiter_class)
        self.memory, self.clock = stores["memory"], stores.clock
        guards = [options_of(case, given, stores, self) for given in case["guards"]]
        self.make(guards)

    def handle(self, headers):
        """Return the status of the handler, or raise."""
        self.handled = True
        if "x-fail" in headers:
            raise ValueError("the handler fails")
        return int(headers.get("x-respond", 200))

    def close(self):
        """End what the service has opened."""

    @staticmethod
    def response_header(response, name):
        return response.headers.get(name)

    @staticmethod
    def status_of(response):
        return response.status_code

    @staticmethod
    def fields(headers):
        """The fields that the handler adds."""
        names = {"x-spent": "x-spent", "x-content-type": "content-type"}
        return {name: headers[order] for order, name in names.items() if order in headers}

    @staticmethod
    def body(headers):
        """The body that the handler sends: text, or the pieces of a stream."""
        pieces = json.loads(headers.get("x-body", '["view"]'))
        return pieces[0] if len(pieces) == 1 else pieces

    def peek(self, key, policy):
        return self.memory.peek(key, policy)


class OpenResponse:
    """A response that a service on threads has begun to send."""

    def __init__(self, response, read):
        self._response = response
        self._read = read

    def close(self):
        self._read()
        self._response.close()

    def leave(self):
        self._response.close()


def cases_of(*services, cases=CASES):
    """The test of a module: every case through each of its services."""

    @pytest.mark.usefixtures("broken_file")
    @pytest.mark.parametrize("service", services, ids=lambda service: service.__name__)
    @pytest.mark.parametrize("case", cases, ids=lambda case: case["name"])
    def test_case(case, service):
        if "error" in case:
            assert case["error"] == "invalid_argument"
            with pytest.raises(InvalidArgumentError):
                service(case)
            return
        service = service(case)
        try:
            run_requests(case, service)
        finally:
            service.close()

    return test_case


def run_requests(case, service):
    opened = {}
    for request in case["requests"]:
        if "close" in request:
            opened.pop(request["close"]).close()
        elif "leave" in request:
            opened.pop(request["leave"]).leave()
        else:
            run_request(request, service, opened)
        for left in request.get("then", []):
            peek = partial(service.peek, left["key"], left["policy"])
            until(lambda peek=peek, left=left: peek().remaining == left["remaining"], f"{request} leaves {left}")
    for left in case.get("left", []):
        assert service.peek(left["key"], left["policy"]).remaining == left["remaining"], left


@contextlib.contextmanager
def elapsing(clock, elapse_ms):
    """Lets time pass every 100 ms until a request is done, so that a guard that holds the request does so first."""
    done = threading.Event()

    def run():
        while not done.wait(0.1):
            clock.advance(elapse_ms / 1000)

    thread = threading.Thread(target=run) if elapse_ms else None
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if thread is not None:
            thread.join()


def run_request(request, service, opened):
    headers = dict(request.get("headers", {}))
    headers |= {f"x-{name}": str(request[name]) for name in ("respond", "fail", "spent", "open") if name in request}
    if "body" in request:
        headers["x-body"] = json.dumps(request["body"])
    if "content_type" in request:
        headers["x-content-type"] = request["content_type"]
    service.handled = False
    method = request.get("method", "GET")
    if "open" in request:
        status, fields, opened[request["open"]] = service.open(method, headers)
        body = ""
    else:
        with elapsing(service.clock, request.get("elapse_ms")):
            status, fields, body = service.send(method, headers)
    check(request["expect"], status, {name.lower(): value for name, value in fields.items()}, body, service)


def check(expect, status, fields, body, service):
    assert (status, service.handled) == (expect["status"], expect["handled"]), body
    for name, value in expect.get("fields", {}).items():
        assert fields.get(name) == value, name
    if "text" in expect:
        assert body == expect["text"]
    problem = expect.get("problem", {})
    if problem:
        found = json.loads(body)
        for name, value in problem.items():
            assert found["violated-policies" if name == "violated" else name] == value, name
    known = {"status", "handled", "fields", "text", "problem"}
    assert set(expect) <= known
