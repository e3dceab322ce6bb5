"""Limits for any ASGI application: a middleware without a framework.

Streaming responses and websockets pass through untouched. :mod:`polylimit.fastapi` has the same for FastAPI and
Starlette, and a dependency for single routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Callable

from polylimit import guard, keys
from polylimit._core import Passed, Sender
from polylimit.guard import Asked, Cost, Denial, Guard, Key, Policies

if TYPE_CHECKING:
    from polylimit import AsyncLimiter

__all__ = ["Denial", "RateLimitMiddleware", "ResponseStart"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Where a request keeps what was decided about it.
OUTCOMES = "polylimit.outcomes"

_INTERNAL_SERVER_ERROR = 500


@dataclass(frozen=True)
class ResponseStart:
    """The beginning of a response, for ``count``."""

    status_code: int
    headers: list[tuple[bytes, bytes]]


class ScopeFacts:
    """What an ASGI server says about a request."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def peer(self) -> str | None:
        """Give the address of the other end of the socket; ``None`` for a Unix socket."""
        client = self._scope.get("client")
        return client[0] if client and client[0] else None

    def header(self, name: str) -> list[bytes]:
        """Give the values of all lines of a header, in the order they were received."""
        wanted = name.encode("latin-1")
        return [value for field, value in self._scope["headers"] if field.lower() == wanted]

    def user(self) -> str | None:
        """Give the identity of the user that an authentication middleware found."""
        user = self._scope.get("user")
        if user is None or not user.is_authenticated:
            return None
        try:
            return str(user.identity)
        except NotImplementedError:
            return str(user.display_name)


class RateLimitMiddleware:
    """Limits every request of an ASGI application.

    Parameters
    ----------
    app
        The application.
    limiter
        The :class:`polylimit.AsyncLimiter`. Without one nothing is limited here, and the dependencies of routes
        have what they need for ``count`` and for the fields of every kind of response.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of several different ones: all admit a
        request, or it spends nothing under any.
        It may be left out where the limiter has one policy.
    key
        Whom a request counts for: a function of the request, or one of :mod:`polylimit.keys`; the client's address
        unless told otherwise.
    cost
        Units that a request spends: a number, or a function of the request.
    count
        A function of the beginning of the response, which has ``status_code`` and ``headers``: only those for which it
        is true count. The cost is reserved before and given back after. For an application that starts no response, as
        it raises or its client goes, it gets one with the status 500.
    skip
        A function of the request: those for which it is true are not limited.
    on_denied, on_outage
        A function of the request and the :class:`Denial` that gives the response, an ASGI application: for a request
        over its limit (429), and for one that is denied because the store cannot be asked (503).
    headers
        Which fields tell clients their limits: ``"ietf"``, ``"legacy"``, ``"both"`` or ``"none"``.

    A function of the request gets the ASGI scope. All but ``count`` may be asynchronous.

    """

    def __init__(
        self,
        app: App,
        *,
        limiter: AsyncLimiter | None = None,
        policy: Policies = None,
        key: Key | None = None,
        cost: Cost = 1,
        count: Callable[[Any], bool] | None = None,
        skip: Callable[[Any], Any] | None = None,
        on_denied: Callable[[Any, Denial], Any] | None = None,
        on_outage: Callable[[Any, Denial], Any] | None = None,
        headers: str = "ietf",
    ) -> None:
        self.app = app
        guards = [
            Guard(
                limiter,
                policy,
                key=key,
                cost=cost,
                count=count,
                skip=skip,
                on_denied=on_denied,
                on_outage=on_outage,
                headers=headers,
            )
        ]
        self._guards = [] if limiter is None else guards
        self._asks_request = any(one.asks_request for one in self._guards)
        self._plain = guards[0].plain
        self._is_by_peer = guards[0].is_by_peer

    def request_of(self, scope: Scope, receive: Receive) -> Any:  # noqa: ARG002
        """Make what functions of the request get."""
        return scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; what is no HTTP request passes through."""
        plain = self._plain
        if plain is None or scope["type"] != "http" or OUTCOMES in scope:
            await self._handle(scope, receive, send)
            return
        if self._is_by_peer:
            client = scope.get("client")
            passed = plain.of_peer(client[0] if client else None)
        else:
            request = self.request_of(scope, receive) if self._asks_request else None
            passed = plain.of_key(await _settled(guard.key_of(self._guards[0], request, ScopeFacts(scope))))
        if passed.is_waiting:
            passed.note(await passed.ask())
        scope[OUTCOMES] = passed
        sender = passed.sender(send)
        try:
            if passed.allowed:
                await self.app(scope, receive, sender)
            else:
                await self._decided(scope, receive, sender, None, Outcomes.of(passed))
        finally:
            if passed.outcomes is not None and not sender.has_started:
                await Outcomes.of(passed).fail()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request that is not the same as every other."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        outcomes = outcomes_in(scope)
        sender = None
        if outcomes is None:
            outcomes = scope[OUTCOMES] = Outcomes()
            # The outermost one adds the fields of all.
            send = sender = Sender(send, outcomes)
        request = self.request_of(scope, receive) if self._asks_request else None
        try:
            await decide(self._guards, request, ScopeFacts(scope), outcomes)
            await self._decided(scope, receive, send, request, outcomes)
        finally:
            if sender is not None and not sender.has_started:
                await outcomes.fail()

    async def _decided(self, scope: Scope, receive: Receive, send: Send, request: Any, outcomes: Outcomes) -> None:
        denial = outcomes.denial()
        app = self.app
        if denial is not None:
            app = await answer(request or self.request_of(scope, receive), denial, outcomes, scope)
        await app(scope, receive, send)


class Outcomes(guard.Outcomes):
    """What the guards of one request decided, and how its response starts."""

    async def start(self, send: Send, message: Message) -> None:
        """Send the start of the response with the fields, and give back what does not count."""
        headers = list(message.get("headers", ()))
        await guard.give_back_async(self, ResponseStart(message["status"], headers))
        await send({**message, "headers": headers + encoded(self.fields())})

    async def fail(self) -> None:
        """Give back what does not count, as an application that fails has no response that could."""
        await guard.give_back_async(self, ResponseStart(_INTERNAL_SERVER_ERROR, []))


def outcomes_in(scope: Scope) -> Outcomes | None:
    """Give what was decided about a request so far, where the middleware has seen it."""
    found = scope.get(OUTCOMES)
    return Outcomes.of(found) if isinstance(found, Passed) else found


def encoded(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Give fields as ASGI has them."""
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]


async def decide(guards: list[Guard], request: Any, facts: keys.Facts, outcomes: guard.Outcomes) -> None:
    """Decide about a request."""
    asked = []
    for one in guards:
        if not one.asks_request:
            asked.append(Asked(one, guard.key_of(one, request, facts), guard.cost_of(one, request)))
            continue
        if one.skip is not None and await _settled(one.skip(request)):
            continue
        key = await _settled(guard.key_of(one, request, facts))
        asked.append(Asked(one, key, await _settled(guard.cost_of(one, request))))
    if asked:
        await guard.decide_async(asked, outcomes)


async def answer(request: Any, denial: Denial, outcomes: guard.Outcomes, scope: Scope) -> App:
    """Give the response to a denial, as an application."""
    own = outcomes.answer_of(denial)
    if own is not None:
        response: App = await _settled(own(request, denial))
        return response
    accept = b", ".join(ScopeFacts(scope).header("accept")).decode("latin-1")
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


async def _settled(value: Any) -> Any:
    return await value if isawaitable(value) else value
