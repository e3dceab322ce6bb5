"""What the interceptors of gRPC share: how a guard reads a call, and how a call is denied."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import unquote

import grpc

from polylimit._charges import policy_list, refuse_asynchronous
from polylimit._client import has_slots
from polylimit._core import AsyncLimiter, InvalidArgumentError, RequestLimits
from polylimit._decide import decide, end, finish
from polylimit._guard import Guard
from polylimit._reader import RequestReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from polylimit import keys
    from polylimit._charges import Cost, Policies
    from polylimit._decide import Steps
    from polylimit._guard import Denial, Key, Outage

#: What each of the values of ``charge`` counts.
CHARGES = ("call", "requests", "responses")
#: The codes by their numbers.
_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True)
class Call:
    """A call, for the functions among the options."""

    #: Such as ``"/shop.Orders/List"``.
    method: str
    #: The message that is counted: the request of a unary call, or one of a stream; ``None`` for a call whose requests
    #: are a stream.
    message: Any
    #: The context of gRPC.
    context: Any

    @property
    def metadata(self) -> dict[str, str | bytes]:
        """What the client has sent with the call."""
        return dict(self.context.invocation_metadata() or ())


class CallOptions(TypedDict, total=False):
    """The options of an interceptor. Those of a middleware for HTTP with the same name mean the same."""

    #: What counts: each ``"call"``, each message of its ``"requests"``, or each of its ``"responses"``.
    charge: str
    #: A function of the :class:`Call`, or parts: the client's address, ``user``, the identity that the client's
    #: certificate names, and ``header:NAME`` of its metadata.
    key: Key | None
    #: See :class:`polylimit.asgi.Options`.
    missing_key: str
    client_address: keys.KeyPart | None
    cost: Cost
    skip: Callable[[Call], Any] | None
    attributes: Callable[[Call], Any] | None
    on_outage: Callable[[Call, Outage], Any] | None
    ttl: float | timedelta | None
    max_age: float | timedelta | None
    wait: float | timedelta | None
    max_waiting: int | None
    message: str | None
    dry_run: bool
    headers: str
    scope: str | None


class CallInfo(RequestReader):
    """Reads a call for a guard."""

    request: Call

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._metadata = [(name, value) for name, value in call.context.invocation_metadata() or ()]

    def method(self) -> str:
        """Return the method of HTTP, which is that of every call."""
        return "POST"

    def peer(self) -> str | None:
        """Return the address of the peer of the socket; ``None`` for a Unix socket."""
        kind, _, rest = unquote(self.request.context.peer()).partition(":")
        return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else None

    def header(self, name: str) -> list[bytes]:
        """Return the values of all entries of the metadata with a name."""
        return [value for found, value in self.lines() if found == name.encode("latin-1")]

    def cookie(self, _name: str) -> str | None:
        """Return nothing: calls have no cookies."""
        return None

    def path(self, _name: str) -> str | None:
        """Return nothing: the path of a method has no parameters."""
        return None

    def user(self) -> str | None:
        """Return the identity that the client's certificate names."""
        identities = self.request.context.peer_identities()
        return next(iter(identities)).decode() if identities else None

    def target(self) -> str:
        """Return the path of the call: its method."""
        return self.request.method

    def lines(self) -> list[tuple[bytes, bytes]]:
        """Return the metadata of the client."""
        return [
            (name.encode("latin-1"), value if isinstance(value, bytes) else value.encode("latin-1"))
            for name, value in self._metadata
        ]

    def route(self) -> str:
        """Return the method of the call, which has a budget of its own for quotas without a name."""
        return self.request.method

    def pattern(self) -> str:
        """Return the same for rules about routes."""
        return self.request.method

    def response(self, _status: int, fields: list[tuple[str, str]], _body: str) -> list[tuple[str, str]]:
        """Return the fields of a denial."""
        return fields

    def with_cors(self, response: Any, _fields: list[tuple[str, str]]) -> Any:
        """Return the fields as they are: browsers do not call gRPC."""
        return response


def make_guard(limiter: Any, policy: Policies, options: CallOptions, limiter_types: tuple[type, ...]) -> Guard:
    """Return the guard of an interceptor."""
    given = dict(options)
    unknown = next((name for name in given if name not in CallOptions.__annotations__), None)
    if unknown is not None:
        raise TypeError(f'unknown option "{unknown}": allowed are {", ".join(CallOptions.__annotations__)}')
    charge = given.pop("charge", "call")
    if charge not in CHARGES:
        raise InvalidArgumentError(f'charge is "{charge}": allowed are {", ".join(CHARGES)}')
    if AsyncLimiter not in limiter_types:
        for name in ("key", "cost", "skip", "attributes", "on_outage"):
            function: Any = given.get(name)
            if callable(function):
                refuse_asynchronous(name, function)
    made: dict[str, Any] = {**given, "limiter_types": limiter_types}
    guard = Guard(limiter, policy, per_route=True, is_attached=True, **made)
    named = [] if policy is None or callable(policy) else policy_list(policy)
    if charge != "call" and any(has_slots(limiter, one) for one in named):
        raise InvalidArgumentError(
            f'charge is "{charge}", and a policy has a quota of concurrency, which a call holds: allowed is "call"'
        )
    return guard


def enter(guard: Guard, call: Call) -> Steps[RequestLimits]:
    """Decide about a call or a message; a denial ends the call."""
    limits = RequestLimits()
    denied = yield from decide(guard, CallInfo(call), limits)
    if denied is not None:
        code, text, trailing = refusal(denied[0], limits)
        call.context.set_trailing_metadata(trailing)
        yield call.context.abort(code, text)
    return limits


def leave(limits: RequestLimits) -> Steps[None]:
    """End what a call or a message holds."""
    if limits.must_finish:
        yield from finish(limits, None)
    if limits.holds:
        yield from end(limits)


def leave_call(limits: RequestLimits, context: Any) -> Steps[None]:
    """End what a call holds, and add its fields to what the handler has set."""
    yield from leave(limits)
    # The context of a migrated synchronous handler does not show what was set.
    if hasattr(context, "trailing_metadata"):
        context.set_trailing_metadata((*(context.trailing_metadata() or ()), *limits.fields()))


def charge(guard: Guard, call: Call) -> Steps[Any]:
    """Charge for the message of a call, and return it."""
    yield from leave((yield from enter(guard, call)))
    return call.message


def refusal(denial: Denial, limits: RequestLimits) -> tuple[grpc.StatusCode, str, tuple[tuple[str, Any], ...]]:
    """Return the code, the text and the trailing metadata of a denied call."""
    _, fields, _ = denial.problem.response("application/grpc")
    status = dict(fields)
    # gRPC writes base64 without its padding, and encodes what it gets as bytes by itself.
    details = b64decode(status["grpc-status-details-bin"] + "==")
    trailing = (*limits.fields(), ("grpc-status-details-bin", details))
    return _CODES[int(status["grpc-status"])], denial.problem.detail, trailing
