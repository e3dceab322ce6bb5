"""The cases of guards that a gRPC call can have, through servers of both kinds and over real connections."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.rpc import error_details_pb2, status_pb2
from guard_cases import CASES, Service, cases_of
from polylimit import AsyncLimiter
from polylimit.grpc import AsyncRateLimitInterceptor, CallOptions, RateLimitInterceptor

METHOD = "/test.Cases/Run"
#: The statuses of the cases in place of codes.
STATUSES = {"OK": 200, "INVALID_ARGUMENT": 400, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503}
STATUSES |= {"UNAUTHENTICATED": 401, "NOT_FOUND": 404, "UNKNOWN": 500, "INTERNAL": 500}
CODES = {status: grpc.StatusCode[name] for name, status in STATUSES.items()}
#: What guards of the cases have; the rest is HTTP's. Two interceptors do not know each other.
OPTIONS = {"policies_of", "key_parts", "store", "costs", "wait_ms", "ttl_ms", "policy", *CallOptions.__annotations__}


def is_of_grpc(case):
    """Whether a case has nothing that calls do not have, and no guards that share a policy."""
    guards, requests = case["guards"], case.get("requests", [])
    # The fields of a call are those at its end, when its slots are free.
    has_slots = any("concurrent" in quotas for quotas in case.get("policies", {}).values())
    return (
        all(set(guard) <= OPTIONS for guard in guards)
        and (len(guards) == 1 or case in WAITING)
        and not any("cookie" in part for guard in guards for part in guard.get("key_parts", []))
        and not any({"method", "open", "close", "leave", "body"} & set(request) for request in requests)
        and not any("text" in request["expect"] for request in requests)
        and not any(has_slots and "fields" in request["expect"] for request in requests)
    )


WAITING = [case for case in CASES if any({"wait_ms", "max_waiting"} & set(guard) for guard in case["guards"])]


class Calls(Service):
    """A server on threads; the first guard is the outermost interceptor."""

    @staticmethod
    def header(call, name):
        return call.metadata.get(name)

    def make(self, guards):
        server = grpc.server(ThreadPoolExecutor(8), interceptors=[RateLimitInterceptor(**one) for one in guards])
        self._port = self.add_to(server, self.answer)
        server.start()
        self._stop = lambda: server.stop(None).wait(60)

    @staticmethod
    def add_to(server, behavior):
        handlers = {"Run": grpc.unary_unary_rpc_method_handler(behavior)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Cases", handlers)])
        return server.add_insecure_port("127.0.0.1:0")

    def answer(self, request, context):
        status = self.handle(dict(context.invocation_metadata()))
        if status != 200:
            context.abort(CODES[status], "the handler")
        return request

    def close(self):
        self._stop()

    def send(self, _method, headers):
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            call = channel.unary_unary(METHOD).future(b"", metadata=list(headers.items()), timeout=60)
            status, fields = STATUSES[call.code().name], dict(call.trailing_metadata())
            return status, fields, json.dumps(problem_of(status, call.details(), fields.get("grpc-status-details-bin")))


def problem_of(status, detail, packed):
    """The problem of a denied call, as HTTP has it."""
    failure = error_details_pb2.QuotaFailure()
    for one in () if packed is None else status_pb2.Status.FromString(packed).details:
        one.Unpack(failure)
    return {"status": status, "detail": detail, "violated-policies": [one.subject for one in failure.violations]}


class AsyncCalls(Calls):
    """A server in an event loop."""

    limiter_class = AsyncLimiter

    def make(self, guards):
        interceptors = [AsyncRateLimitInterceptor(**one) for one in guards]
        started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve(interceptors, started)])
        self._thread.start()
        assert started.wait(60)

    async def _serve(self, interceptors, started):
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(interceptors=interceptors)

        async def behavior(request, context):
            status = self.handle(dict(context.invocation_metadata()))
            if status != 200:
                await context.abort(CODES[status], "the handler")
            return request

        self._port = self.add_to(server, behavior)
        await server.start()
        started.set()
        await self._ended.wait()
        await server.stop(None)

    def close(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)

    def peek(self, key, policy):
        return self.memory.blocking.peek(key, policy)


def as_calls(case):
    """A case without what only the body of a response has."""
    requests = json.loads(json.dumps(case.get("requests", [])))
    for request in requests:
        request["expect"].get("problem", {}).pop("type", None)
        for name in ("content-type", "vary"):
            request["expect"].get("fields", {}).pop(name, None)
    return {**case, "requests": requests}


OF_GRPC = [as_calls(case) for case in CASES if is_of_grpc(case)]

test_case = cases_of(Calls, AsyncCalls, cases=OF_GRPC)


def test_cases_are_found():
    names = {case["name"] for case in OF_GRPC}
    assert {case["name"] for case in WAITING} <= names
    assert len(names) >= 50
