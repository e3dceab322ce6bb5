"""Limits of a gRPC server, synchronous and asynchronous, over real connections."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from polylimit import InvalidArgumentError, Limiter, ManualClock
from polylimit.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor
from redis_server import until

SERVICE = "test.Words"
#: Each method answers with the words of its requests; `drain` reads and writes by the context where it can.
KINDS = {"One": "unary_unary", "Split": "unary_stream", "Join": "stream_unary", "Each": "stream_stream"}


def release(context):
    """Waits until the client ends the wait, where it asks for one."""
    event = EVENTS.get(dict(context.invocation_metadata()).get("event"))
    if event is not None:
        assert event.wait(60)


EVENTS = {}


def one(request, context):
    release(context)
    context.set_trailing_metadata((("own", "kept"),))
    return request


def split(request, context):
    yield from request.split()
    release(context)


def join(requests, context):
    return b" ".join(requests)


def each(requests, context):
    yield from requests


async def one_async(request, context):
    context.set_trailing_metadata((("own", "kept"),))
    await asyncio.get_running_loop().run_in_executor(None, release, context)
    return request


async def split_async(request, context):
    for word in request.split():
        yield word
    await asyncio.get_running_loop().run_in_executor(None, release, context)


async def join_async(requests, context):
    return b" ".join([request async for request in requests])


async def each_async(requests, context):
    async for request in requests:
        yield request


async def split_writing(request, context):
    for word in request.split():
        await context.write(word)
    await asyncio.get_running_loop().run_in_executor(None, release, context)


async def join_reading(_requests, context):
    words = []
    while (word := await context.read()) is not grpc.aio.EOF:
        words.append(word)
    return b" ".join(words)


async def each_reading(_requests, context):
    while (word := await context.read()) is not grpc.aio.EOF:
        await context.write(word)


BEHAVIORS = {
    "sync": [one, split, join, each],
    "aio": [one_async, split_async, join_async, each_async],
    "aio with contexts": [one_async, split_writing, join_reading, each_reading],
    "aio with threads": [one, split, join, each],
}


def handler_of(behaviors):
    made = zip(KINDS.items(), behaviors, strict=True)
    methods = {name: getattr(grpc, f"{kind}_rpc_method_handler")(behavior) for (name, kind), behavior in made}
    return grpc.method_handlers_generic_handler(SERVICE, methods)


class Server:
    """A server of a kind; its options are those of an interceptor."""

    def __init__(self, kind, limiter, policy=None, **options):
        self.kind = kind
        started = threading.Event()
        if kind == "sync":
            interceptor = RateLimitInterceptor(limiter, policy, **options)
            server = grpc.server(ThreadPoolExecutor(8), interceptors=[interceptor])
            server.add_generic_rpc_handlers([handler_of(BEHAVIORS[kind])])
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            self._stop = lambda: server.stop(None).wait(60)
        else:
            interceptor = AsyncRateLimitInterceptor(limiter.asynchronous, policy, **options)
            self._thread = threading.Thread(target=asyncio.run, args=[self._serve(kind, interceptor, started)])
            self._thread.start()
            assert started.wait(60)
            port = self._port
            self._stop = self._stop_thread
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    async def _serve(self, kind, interceptor, started):
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(interceptors=[interceptor], migration_thread_pool=ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers([handler_of(BEHAVIORS[kind])])
        self._port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        started.set()
        await self._ended.wait()
        await server.stop(None)

    def _stop_thread(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.channel.close()
        self._stop()

    def call(self, name, request, **metadata):
        """What a call receives, the code with which it ends, and its trailing metadata."""
        stub = getattr(self.channel, KINDS[name])(f"/{SERVICE}/{name}")
        call, received = None, []
        sent = iter(request) if KINDS[name].startswith("stream") else request
        options = {"metadata": list(metadata.items()), "timeout": 60}
        try:
            if KINDS[name].endswith("stream"):
                call = stub(sent, **options)
                received += call
            else:
                response, call = stub.with_call(sent, **options)
                received.append(response)
        except grpc.RpcError as error:
            call = error
        return SimpleNamespace(
            received=received, code=call.code().name, details=call.details(), trailing=dict(call.trailing_metadata())
        )


@pytest.fixture(params=BEHAVIORS)
def kind(request):
    return request.param


def details_of(ended):
    """The details of a denied call."""
    status = status_pb2.Status.FromString(ended.trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (grpc.StatusCode[ended.code].value[0], ended.details)
    found = {}
    for packed in status.details:
        for type_ in (error_details_pb2.RetryInfo, error_details_pb2.QuotaFailure):
            message = type_()
            if packed.Unpack(message):
                found[type_.__name__] = message
    return found


REQUESTS = {"One": b"a b", "Split": b"a b", "Join": [b"a", b"b"], "Each": [b"a", b"b"]}
RESPONSES = {"One": [b"a b"], "Split": [b"a", b"b"], "Join": [b"a b"], "Each": [b"a", b"b"]}


@pytest.mark.parametrize("name", KINDS)
def test_call_over_its_limit_is_denied_with_the_time_to_wait(kind, name):
    limiter = Limiter(policies={"api": "1/90s fixed_window"}, clock=ManualClock(now=1_789_948_800))
    with Server(kind, limiter, "api", key="header:x-tenant") as server:
        first = server.call(name, REQUESTS[name], **{"x-tenant": "acme"})
        assert (first.code, first.received) == ("OK", RESPONSES[name])
        denied = server.call(name, REQUESTS[name], **{"x-tenant": "acme"})
        assert (denied.code, denied.received) == ("RESOURCE_EXHAUSTED", [])
        found = details_of(denied)
        assert found["RetryInfo"].retry_delay.seconds == int(limiter.peek("x-tenant:acme").retry_after)
        assert [one.subject for one in found["QuotaFailure"].violations] == ["api"]
        assert '"api"' in denied.trailing["ratelimit-policy"]
        assert server.call(name, REQUESTS[name], **{"x-tenant": "globex"}).code == "OK"
    if kind != "aio with threads":
        assert '"api"' in first.trailing["ratelimit"]
        assert "own" not in first.trailing or first.trailing["own"] == "kept"


def test_wait_in_the_details_has_the_jitter_of_the_field(kind):
    limiter = Limiter(policies={"api": "1/h fixed_window"}, clock=ManualClock(now=1_789_948_800))
    with Server(kind, limiter, "api", headers="ietf jitter=100%") as server:
        assert server.call("One", b"a").code == "OK"
        for _ in range(3):
            denied = server.call("One", b"a")
            assert details_of(denied)["RetryInfo"].retry_delay.seconds == int(denied.trailing["retry-after"])


@pytest.mark.parametrize(("name", "charge"), [("Join", "requests"), ("Each", "requests"), ("Each", "responses")])
def test_messages_of_streams_are_charged(kind, name, charge):
    limiter = Limiter(policies={"messages": "5/day"})
    cost = {"cost": lambda call: len(call.message)}
    with Server(kind, limiter, "messages", charge=charge, key="header:x-tenant", **cost) as server:
        tenant = {"x-tenant": "acme"}
        assert server.call(name, [b"a", b"bb"], **tenant).code == "OK"
        assert limiter.peek("x-tenant:acme").remaining == 2
        ended = server.call(name, [b"c", b"ddd", b"e"], **tenant)
        assert ended.code == "RESOURCE_EXHAUSTED"
        assert ended.received in ([], [b"c"])
        assert "RetryInfo" in details_of(ended)
        assert limiter.peek("x-tenant:acme").remaining == 1


@pytest.mark.parametrize(("name", "charge"), [("One", "requests"), ("One", "responses"), ("Split", "responses")])
def test_messages_of_unary_requests_and_responses_are_charged(kind, name, charge):
    limiter = Limiter(policies={"messages": "3/day"})
    with Server(kind, limiter, "messages", charge=charge, scope="all", key=lambda _call: "all") as server:
        assert server.call(name, b"a b").code == "OK"
        assert limiter.peek("all").remaining == (1 if name == "Split" else 2)


@pytest.mark.parametrize("name", ["One", "Split"])
def test_slot_is_held_until_the_call_ends(kind, name):
    limiter = Limiter(policies={"slots": "1 concurrent"})
    with Server(kind, limiter, "slots", key=lambda _call: "all") as server:
        EVENTS["slot"] = threading.Event()
        stub = getattr(server.channel, KINDS[name])(f"/{SERVICE}/{name}")
        if name == "One":
            running = stub.future(b"a", metadata=[("event", "slot")])
        else:
            running = stub(b"a", metadata=[("event", "slot")])
            assert next(running) == b"a"
        until(lambda: not limiter.peek("all").allowed, "the call holds the slot")
        assert server.call(name, b"a").code == "RESOURCE_EXHAUSTED"
        EVENTS["slot"].set()
        with contextlib.suppress(StopIteration):
            next(running) if name == "Split" else running.result(60)
        until(lambda: limiter.peek("all").allowed, "the slot is free")
        # A client that leaves frees it as well.
        EVENTS["slot"] = threading.Event()
        leaving = stub(b"a", metadata=[("event", "slot")]) if name == "Split" else None
        if leaving is not None:
            assert next(leaving) == b"a"
            leaving.cancel()
            EVENTS["slot"].set()
            until(lambda: limiter.peek("all").allowed, "the slot of the client that has left is free")


def test_methods_have_budgets_of_their_own_and_rules_name_them(kind):
    with Server(kind, Limiter(), "1/day") as server:
        assert [server.call(name, REQUESTS[name]).code for name in KINDS] == ["OK"] * 4
        assert {server.call(name, REQUESTS[name]).code for name in KINDS} == {"RESOURCE_EXHAUSTED"}
    document = f"""
    polylimit = 1
    [policies.split]
    quotas = "1/day"
    [[rules]]
    match = {{ route = "/{SERVICE}/Split" }}
    apply = [{{ policy = "split", key = "{{client}}" }}]
    """
    with Server(kind, Limiter(document=document)) as server:
        assert [server.call("Split", b"a").code for _ in range(2)] == ["OK", "RESOURCE_EXHAUSTED"]
        assert [server.call("One", b"a").code for _ in range(2)] == ["OK"] * 2


def test_codes_of_other_denials(kind):
    limiter = Limiter("redis://127.0.0.1:1?doctor_after=0", {"api": "1/day"}, outage="deny")
    with Server(kind, limiter, "api") as server:
        assert server.call("One", b"a").code == "UNAVAILABLE"
    with Server(kind, Limiter(policies={"api": "1/day"}), "api", key="header:x-tenant", missing_key="refuse") as server:
        assert server.call("One", b"a").code == "INVALID_ARGUMENT"
        assert server.call("One", b"a", **{"x-tenant": "acme"}).code == "OK"
    with Server(kind, Limiter(policies={"api": "0/day"}), "api") as server:
        ended = server.call("One", b"a")
        assert ended.code == "RESOURCE_EXHAUSTED"
        # No wait helps.
        assert "RetryInfo" not in details_of(ended)
    with Server(kind, Limiter(policies={"api": "0/day"}), "api", skip=lambda call: call.metadata.get("free")) as server:
        assert server.call("One", b"a", free="1").code == "OK"


def test_options_are_validated_where_they_stand():
    limiter = Limiter(policies={"api": "1/day"})
    for interceptor in (RateLimitInterceptor, AsyncRateLimitInterceptor):
        with pytest.raises(InvalidArgumentError, match='charge is "messages": allowed are call, requests, responses'):
            interceptor(limiter, "api", charge="messages")
        with pytest.raises(TypeError, match='unknown option "methods": allowed are charge, key'):
            interceptor(limiter, "api", methods=["GET"])
        with pytest.raises(InvalidArgumentError):
            interceptor(limiter, "apis")
        with pytest.raises(InvalidArgumentError, match='which a call holds: allowed is "call"'):
            interceptor(limiter, "2 concurrent", charge="requests")
    with pytest.raises(TypeError, match=r"such as its \.blocking"):
        RateLimitInterceptor(limiter.asynchronous, "api")

    async def cost(_call): ...

    with pytest.raises(InvalidArgumentError, match=r"cost is .*, which is asynchronous"):
        RateLimitInterceptor(limiter, "api", cost=cost)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:50000", "192.0.2.7"),
        ("ipv6:%5B2001:db8::1%5D:50000", "2001:db8::1"),
        ("ipv6:[2001:db8::1]:50000", "2001:db8::1"),
        ("unix:/run/a.sock", None),
        ("unix:", None),
    ],
)
def test_address_and_user_of_a_client(peer, address):
    from polylimit._calls import Call, CallInfo

    def info(identities):
        context = SimpleNamespace(
            invocation_metadata=lambda: (("x-a", "1"), ("x-b-bin", b"\xff"), ("x-a", "2")),
            peer=lambda: peer,
            peer_identities=lambda: identities,
        )
        return CallInfo(Call("/a.B/C", None, context))

    assert info(None).peer() == address
    assert (info(None).user(), info([b"client.example", b"other"]).user()) == (None, "client.example")
    assert info(None).header("x-a") == [b"1", b"2"]
    assert info(None).header("x-b-bin") == [b"\xff"]
