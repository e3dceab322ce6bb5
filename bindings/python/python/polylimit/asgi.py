"""Limits for any ASGI application: a middleware without a framework.

Streaming responses and websockets pass through untouched. :mod:`polylimit.fastapi` has the same for FastAPI and
Starlette, and a dependency for single routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Callable

from polylimit import keys
from polylimit import outcomes as decided
from polylimit._core import Passed, Sender
from polylimit.guard import Cost, Denial, Guard, Key, Policies, cost_of, key_of, key_or_address, refuse_unknown
from polylimit.outcomes import Asked, decide_async, give_back_async

if TYPE_CHECKING:
    from typing_extensions import Never

    from polylimit import AsyncLimiter, Limiter

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

    def route(self) -> str | None:
        """Give the method and the path of the route, as they are written in the application."""
        route = self._scope.get("route")
        path = getattr(route, "path_format", None) or getattr(route, "path", None)
        if path is None:
            return None
        # Where the application is mounted in another one, without what a proxy leaves out of the path.
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
    scope
        Quotas without a name have a budget of their own in each scope: 1 to 256 bytes of text. Unless told otherwise,
        a dependency's are those of its route, such as ``"GET /users/{id}"``, and a middleware's are shared by all
        requests for the same quotas. A policy with a name is shared by all limits that name it.

    A function of the request gets the ASGI scope. All but ``count`` may be asynchronous.

    Raises
    ------
    InvalidArgumentError
        When a policy is not known, quotas cannot be read, or another option is not valid.
    TypeError
        When the limiter is none, or an option is unknown or of another type.

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
            own = Guard(
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
            self._guards.append(own)
        elif policy is not None:
            raise TypeError("policy needs a limiter: without one nothing would be limited")
        refuse_unknown(unknown)
        self._asks_request = any(one.asks_request for one in self._guards)
        self._plain = self._guards[0].plain if self._guards else None
        self._is_by_peer = any(one.is_by_peer for one in self._guards)

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
            facts = ScopeFacts(scope)
            passed = plain.of_key(key_or_address(await _settled(key_of(self._guards[0], request, facts)), facts))
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


class Outcomes(decided.Outcomes):
    """What the guards of one request decided, and how its response starts."""

    async def start(self, send: Send, message: Message) -> None:
        """Send the start of the response with the fields, and give back what does not count."""
        headers = list(message.get("headers", ()))
        await give_back_async(self, ResponseStart(message["status"], headers))
        await send({**message, "headers": headers + encoded(self.fields())})

    async def fail(self) -> None:
        """Give back what does not count, as an application that fails has no response that could."""
        await give_back_async(self, ResponseStart(_INTERNAL_SERVER_ERROR, []))


def outcomes_in(scope: Scope) -> Outcomes | None:
    """Give what was decided about a request so far, where the middleware has seen it."""
    found = scope.get(OUTCOMES)
    return Outcomes.of(found) if isinstance(found, Passed) else found


def encoded(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Give fields as ASGI has them."""
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]


async def decide(guards: list[Guard], request: Any, facts: keys.Facts, outcomes: decided.Outcomes) -> None:
    """Decide about a request."""
    asked = []
    for one in guards:
        if not one.asks_request:
            asked.append(Asked(one, key_of(one, request, facts), cost_of(one, request), one.policies_of(facts)))
            continue
        if one.skip is not None and await _settled(one.skip(request)):
            continue
        key = key_or_address(await _settled(key_of(one, request, facts)), facts)
        asked.append(Asked(one, key, await _settled(cost_of(one, request)), one.policies_of(facts)))
    if asked:
        await decide_async(asked, outcomes)


async def answer(request: Any, denial: Denial, outcomes: decided.Outcomes, scope: Scope) -> App:
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
