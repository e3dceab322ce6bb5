"""Limits for any ASGI application: a middleware that needs no framework.

Streaming responses and websockets pass through unchanged. :mod:`polylimit.fastapi` has the same middleware for FastAPI
and Starlette, and a dependency for single routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Callable

from polylimit import keys
from polylimit import outcomes as base
from polylimit._core import GuardResult, ResponseSender
from polylimit.guard import Cost, Denial, Guard, Key, Policies, cost_of, key_of, key_or_address, refuse_unknown_options
from polylimit.outcomes import GuardRequest, decide_async, refund_uncounted_async

if TYPE_CHECKING:
    from typing_extensions import Never

    from polylimit import AsyncLimiter, Limiter

__all__ = ["Denial", "RateLimitMiddleware", "ResponseStart"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The key in the ASGI scope under which a request keeps its decisions.
OUTCOMES = "polylimit.outcomes"

_INTERNAL_SERVER_ERROR = 500


@dataclass(frozen=True)
class ResponseStart:
    """The start of a response, for ``count``."""

    status_code: int
    headers: list[tuple[bytes, bytes]]


class ScopeInfo:
    """Reads a request from its ASGI scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def peer(self) -> str | None:
        """Return the address of the peer of the socket; ``None`` for a Unix socket."""
        client = self._scope.get("client")
        return client[0] if client and client[0] else None

    def header(self, name: str) -> list[bytes]:
        """Return the values of all lines of a header, in the order they were received."""
        wanted = name.encode("latin-1")
        return [value for field, value in self._scope["headers"] if field.lower() == wanted]

    def user(self) -> str | None:
        """Return the identity of the user, as an authentication middleware set it."""
        user = self._scope.get("user")
        if user is None or not user.is_authenticated:
            return None
        try:
            return str(user.identity)
        except NotImplementedError:
            return str(user.display_name)

    def route(self) -> str | None:
        """Return the methods and the path of the route, as the application declares them."""
        route = self._scope.get("route")
        path = getattr(route, "path_format", None) or getattr(route, "path", None)
        if path is None:
            return None
        # Add where the application is mounted in another one, but not the prefix that a proxy removes from the path.
        root = self._scope.get("root_path", "")
        mounted_at = root[len(self._scope.get("app_root_path", root)) :]
        return f"{','.join(sorted(getattr(route, 'methods', None) or ()))} {mounted_at}{path}"


class RateLimitMiddleware:
    """Limits every request of an ASGI application.

    Parameters
    ----------
    app
        The application.
    limiter
        The :class:`polylimit.AsyncLimiter`. Without one the middleware limits nothing, but lets the dependencies of
        routes use ``count`` and add their header fields to every kind of response.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy.
    key
        By which key a request counts: a function of the request, or one of :mod:`polylimit.keys`; the default is the
        client's address.
    cost
        Units that a request spends: a number, or a function of the request.
    count
        A function of the start of the response, which has ``status_code`` and ``headers``: a request counts only if it
        returns true. The cost is reserved before the request and refunded after it. If the application starts no
        response, because it raises or the client disconnects, the function gets one with the status 500.
    skip
        A function of the request: requests for which it is true are not limited.
    on_denied, on_outage
        A function of the request and the :class:`Denial` that returns the response, an ASGI application: for a request
        over its limit (429), and for one that is denied because the store cannot be asked (503).
    headers
        Which header fields tell clients their limits: ``"ietf"``, ``"legacy"``, ``"both"`` or ``"none"``.
    scope
        1 to 256 bytes of text. Quotas without a name have a separate budget in each scope. By default a dependency uses
        its route as the scope, such as ``"GET /users/{id}"``, and a middleware shares one budget among all requests. A
        policy with a name is shared by all limits that use it.

    Functions of the request get the ASGI scope. All functions but ``count`` may be asynchronous.

    Raises
    ------
    InvalidArgumentError
        When a policy is not known, quotas cannot be read, or another option is not valid.
    TypeError
        When the limiter is of another type, or an option is unknown or of another type.

    """

    def __init__(
        self,
        app: App,
        *,
        limiter: AsyncLimiter | Limiter | None = None,
        policy: Policies = None,
        key: Key | None = None,
        cost: Cost = 1,
        count: Callable[[Any], bool] | None = None,
        skip: Callable[[Any], Any] | None = None,
        on_denied: Callable[[Any, Denial], Any] | None = None,
        on_outage: Callable[[Any, Denial], Any] | None = None,
        headers: str = "ietf",
        scope: str | None = None,
        **unknown: Never,
    ) -> None:
        self.app = app
        self._guards: list[Guard] = []
        if limiter is not None:
            guard = Guard(
                limiter,
                policy,
                key=key,
                cost=cost,
                count=count,
                skip=skip,
                on_denied=on_denied,
                on_outage=on_outage,
                headers=headers,
                scope=scope,
                **unknown,
            )
            self._guards.append(guard)
        elif policy is not None:
            raise TypeError("policy needs a limiter: without one nothing would be limited")
        refuse_unknown_options(unknown)
        self._needs_request = any(guard.needs_request for guard in self._guards)
        self._fast = self._guards[0].fast if self._guards else None
        self._is_keyed_by_peer = any(guard.is_keyed_by_peer for guard in self._guards)

    def request_of(self, scope: Scope, receive: Receive) -> Any:  # noqa: ARG002
        """Return the argument of functions of the request."""
        return scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; other protocols than HTTP pass through."""
        fast = self._fast
        if fast is None or scope["type"] != "http" or OUTCOMES in scope:
            await self._handle(scope, receive, send)
            return
        if self._is_keyed_by_peer:
            client = scope.get("client")
            result = fast.check_peer(client[0] if client else None)
        else:
            request = self.request_of(scope, receive) if self._needs_request else None
            info = ScopeInfo(scope)
            result = fast.check_key(key_or_address(await _resolve(key_of(self._guards[0], request, info)), info))
        if result.is_pending:
            result.set_decision(await result.check_async())
        scope[OUTCOMES] = result
        sender = result.sender(send)
        try:
            if result.allowed:
                await self.app(scope, receive, sender)
            else:
                await self._respond(scope, receive, sender, None, Outcomes.from_result(result))
        finally:
            if result.outcomes is not None and not sender.has_started:
                await Outcomes.from_result(result).fail()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request without the fast path."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        outcomes = outcomes_in(scope)
        sender = None
        if outcomes is None:
            outcomes = scope[OUTCOMES] = Outcomes()
            # The outermost middleware adds the fields of all guards.
            send = sender = ResponseSender(send, outcomes)
        request = self.request_of(scope, receive) if self._needs_request else None
        try:
            await decide(self._guards, request, ScopeInfo(scope), outcomes)
            await self._respond(scope, receive, send, request, outcomes)
        finally:
            if sender is not None and not sender.has_started:
                await outcomes.fail()

    async def _respond(self, scope: Scope, receive: Receive, send: Send, request: Any, outcomes: Outcomes) -> None:
        denial = outcomes.denial()
        app = self.app
        if denial is not None:
            app = await denial_response(request or self.request_of(scope, receive), denial, outcomes, scope)
        await app(scope, receive, send)


class Outcomes(base.Outcomes):
    """The decisions of all guards of one request, and the start of its response."""

    async def start(self, send: Send, message: Message) -> None:
        """Refund what does not count, and send the start of the response with the header fields."""
        headers = list(message.get("headers", ()))
        await refund_uncounted_async(self, ResponseStart(message["status"], headers))
        await send({**message, "headers": headers + encoded(self.fields())})

    async def fail(self) -> None:
        """Refund what does not count when the application fails without a response."""
        await refund_uncounted_async(self, ResponseStart(_INTERNAL_SERVER_ERROR, []))


def outcomes_in(scope: Scope) -> Outcomes | None:
    """Return the decisions about a request so far; ``None`` if no middleware has handled it."""
    found = scope.get(OUTCOMES)
    return Outcomes.from_result(found) if isinstance(found, GuardResult) else found


def encoded(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return header fields in the form of ASGI."""
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]


async def decide(guards: list[Guard], request: Any, info: keys.RequestInfo, outcomes: base.Outcomes) -> None:
    """Decide about a request by several guards."""
    requests = []
    for one in guards:
        if not one.needs_request:
            requests.append(
                GuardRequest(one, key_of(one, request, info), cost_of(one, request), one.policy_names(info))
            )
            continue
        if one.skip is not None and await _resolve(one.skip(request)):
            continue
        key = key_or_address(await _resolve(key_of(one, request, info)), info)
        requests.append(GuardRequest(one, key, await _resolve(cost_of(one, request)), one.policy_names(info)))
    if requests:
        await decide_async(requests, outcomes)


async def denial_response(request: Any, denial: Denial, outcomes: base.Outcomes, scope: Scope) -> App:
    """Return the response to a denial, which is an ASGI application."""
    handler = outcomes.denial_handler(denial)
    if handler is not None:
        response: App = await _resolve(handler(request, denial))
        return response
    accept = b", ".join(ScopeInfo(scope).header("accept")).decode("latin-1")
    content_type, body = denial.problem.body(accept or None)
    content = body.encode()
    headers = [
        (b"content-type", content_type.encode("ascii")),
        (b"content-length", str(len(content)).encode("ascii")),
    ]

    async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": denial.problem.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": content})

    return respond


async def _resolve(value: Any) -> Any:
    return await value if isawaitable(value) else value
