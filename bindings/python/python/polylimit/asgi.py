"""Limits for any ASGI application: a middleware that needs no framework.

Streaming responses and web sockets pass through unchanged. :mod:`polylimit.fastapi` has the same middleware for FastAPI
and Starlette, and a dependency for single routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from polylimit._core import RequestLimits, ResponseSender
from polylimit._decide import Denied, abandon, begin, decide, drive_async, end, finish, refuse
from polylimit._guard import Denial, Guard, Options, Outage, refuse_unknown_options
from polylimit._routes import full_path, host_pattern, matched_route, mount_pattern, path_pattern

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from polylimit import AsyncLimiter, Limiter
    from polylimit._charges import Policies
    from polylimit._core import GuardCheck

__all__ = ["Denial", "Limit", "Options", "Outage", "RateLimitMiddleware", "ResponseStart", "request_limits"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The key in the ASGI scope under which a request keeps its limits.
LIMITS = "polylimit.limits"

_INTERNAL_SERVER_ERROR = 500
#: The code with which a web socket is closed that a limit denies.
_POLICY_VIOLATION = 1008
#: The messages that respond to the handshake of a web socket, with the status of those that name none.
_HANDSHAKE_STATUSES = {"websocket.accept": 101, "websocket.close": 403, "websocket.http.response.start": 200}


@dataclass(frozen=True)
class ResponseStart:
    """The start of a response, for ``count`` and ``spent``."""

    status_code: int
    headers: list[tuple[bytes, bytes]]
    #: The ASGI scope of its request.
    scope: Scope

    @property
    def state(self) -> MutableMapping[str, Any]:
        """What the application has set for the request, as ``request.state.tokens = 1200`` of Starlette does."""
        state: MutableMapping[str, Any] = self.scope.get("state", {})
        return state


def request_limits(scope: Scope) -> RequestLimits | None:
    """Return what the limits of a request have decided so far; ``None`` for a request without limits."""
    return cast("RequestLimits | None", scope.get(LIMITS))


class ScopeInfo:
    """Reads a request from its ASGI scope."""

    #: Whether the router leaves out the prefix of a proxy from the path, as the ASGI of today says.
    _strips_root = True

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive

    @property
    def request(self) -> Any:
        """The argument of functions of the request."""
        return self._scope

    def method(self) -> str:
        """Return the request's method."""
        # The handshake of a web socket has no other.
        return str(self._scope.get("method", "GET"))

    def peer(self) -> str | None:
        """Return the address of the peer of the socket; ``None`` for a Unix socket."""
        client = self._scope.get("client")
        return client[0] if client and client[0] else None

    def header(self, name: str) -> list[bytes]:
        """Return the values of all lines of a header, in the order they were received."""
        wanted = name.encode("latin-1")
        return [value for field, value in self._scope["headers"] if field.lower() == wanted]

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie, if there is one."""
        for pair in b";".join(self.header("cookie")).decode("latin-1").split(";"):
            found, _, value = pair.strip().partition("=")
            if found == name:
                return value
        return None

    def path(self, name: str) -> str | None:
        """Return the value of a parameter of the route's path, if there is one."""
        value = self._scope.get("path_params", {}).get(name)
        return None if value is None else str(value)

    def user(self) -> str | None:
        """Return the identity of the user, as an authentication middleware set it."""
        user = self._scope.get("user")
        if user is None or not user.is_authenticated:
            return None
        try:
            return str(user.identity)
        except NotImplementedError:
            return str(user.display_name)

    def target(self) -> str | bytes:
        """Return the path as the router sees it, quoted, with the prefixes of all mounts."""
        # Expressions of routes end in $, which also matches before a line feed at the end.
        return quote(full_path(self._scope, strips_root=self._strips_root).removesuffix("\n"))

    def router_paths(self) -> int:
        """Return how the router reads paths."""
        return 0

    def lines(self) -> list[tuple[bytes, bytes]]:
        """Return all lines of the header, in the order they were received."""
        return [(name, value) for name, value in self._scope["headers"]]

    def pattern(self) -> str | None:
        """Return the pattern of the route, with those of all mounts; ``None`` before the routing."""
        route = matched_route(self._scope)
        return None if route is None else mount_pattern(self._scope) + path_pattern(route.path)

    def route(self) -> str | None:
        """Return the methods and the pattern of the route, or the pattern of the mount that the request has reached."""
        route = matched_route(self._scope)
        mount = mount_pattern(self._scope)
        if route is None:
            return mount or None
        methods = set(getattr(route, "methods", None) or ())
        if "GET" in methods:
            # They run the same handler.
            methods.discard("HEAD")
        names = ",".join(sorted(methods)) or "GET"
        if names == "GET" and self.method() == "HEAD":
            names = "HEAD"
        return f"{names} {host_pattern(self._scope, route)}{mount}{path_pattern(route.path)}"

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> App:
        """Return a response, which is an ASGI application."""
        content = body.encode()
        headers = encoded([*fields, ("content-length", str(len(content)))])

        async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": content})

        return respond

    def with_cors(self, response: App, fields: list[tuple[str, str]]) -> App:
        """Return a response with these fields, unless it has ``access-control-allow-origin`` already."""
        return _with_fields(response, fields)


def _with_fields(app: App, fields: list[tuple[str, str]]) -> App:
    """Return an application whose response has these fields, unless it allows an origin by itself."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name.lower() != b"access-control-allow-origin" for name, _ in headers):
                    message = {**message, "headers": headers + encoded(fields)}
            await send(message)

        await app(scope, receive, sender)

    return respond


class Limit:
    """The options of a :class:`RateLimitMiddleware`, which are validated when this object is made.

    ``add_middleware`` of Starlette and FastAPI keeps options without looking at them, and makes the middleware when the
    application starts or with its first request. With this object it raises for a mistake at once:
    ``app.add_middleware(RateLimitMiddleware, limit=Limit(limiter, "api"))``.
    """

    #: Whether the limit belongs to a route.
    _is_of_route = False

    def __init__(self, limiter: AsyncLimiter | Limiter, policy: Policies = None, **options: Unpack[Options]) -> None:
        self._make_guard = partial(Guard, limiter, policy, **options)
        self._guard = self._make_guard(per_route=self._is_of_route, is_attached=self._is_of_route)

    def __repr__(self) -> str:
        return self._guard.show(self)

    def __deepcopy__(self, _memo: object) -> Limit:
        # Litestar copies handlers with the options of their middleware. A limit does not change.
        return self

    def guards(self) -> tuple[Guard, Guard, Guard]:
        """Return the guards of a middleware: that of an application, of a mount, and of a route."""
        make = self._make_guard
        return make(), make(per_route=True), make(per_route=True, is_attached=True)


class RateLimitMiddleware:
    """Limits every request of an ASGI application.

    Quotas without a name have one budget for all requests of the application. A middleware inside of a ``Mount`` of
    Starlette, or of an application that is mounted in another one, has one for each mount, and one of a ``Route`` for
    the route, unless a ``scope`` is given.

    Parameters
    ----------
    app
        The application.
    limit
        All options but ``websockets``, as a :class:`Limit`.
    limiter
        The :class:`polylimit.AsyncLimiter`. Without one the middleware limits nothing, but lets the dependencies of
        routes use ``count`` and add their header fields to every kind of response.
    policy
        A policy's name, quotas such as ``"100/minute"``, or a list of different policies: all admit a request, or it
        spends nothing under any. It may be left out where the limiter has one policy. A function of the request returns
        the same, or ``None`` for a request that is not limited.
    websockets
        Whether the handshakes of web sockets are limited as well. A reservation then lasts until the socket is closed.
        By default they pass through, unless a dependency of FastAPI limits their route.
    options
        See :class:`Options`. Functions of the request get the ASGI scope. All functions but ``count``
        and a function ``spent``, which get a :class:`ResponseStart`, may be asynchronous. ``on_denied`` returns an ASGI
        application.

    Raises
    ------
    InvalidArgumentError
        When a policy is not known, quotas cannot be read, or another option is not valid.
    TypeError
        When the limiter is of another type, or an option is unknown or of another type.

    """

    #: Reads the requests.
    _info: type[ScopeInfo] = ScopeInfo

    def __init__(
        self,
        app: App,
        *,
        limit: Limit | None = None,
        limiter: AsyncLimiter | Limiter | None = None,
        policy: Policies = None,
        websockets: bool = False,
        **options: Unpack[Options],
    ) -> None:
        self.app = app
        self._limits_websockets = websockets
        if limit is None:
            if limiter is not None:
                limit = Limit(limiter, policy, **options)
            else:
                if policy is not None:
                    raise TypeError("policy needs a limiter: without one nothing would be limited")
                refuse_unknown_options({name: None for name in options if name not in Options.__annotations__})
        elif not isinstance(limit, Limit):
            raise TypeError(f"limit is of type {type(limit).__name__}: allowed is a Limit or a RateLimit of polylimit")
        elif limiter is not None or policy is not None or options:
            names = [
                *(["limiter"] if limiter is not None else []),
                *(["policy"] if policy is not None else []),
                *options,
            ]
            raise TypeError(f"limit and {', '.join(names)} are given: allowed is to give them to the limit alone")
        self._guard: Guard | None = None
        self._guard_of_mount: Guard | None = None
        self._guard_of_route: Guard | None = None
        if limit is not None:
            self._guard, self._guard_of_mount, self._guard_of_route = limit.guards()
        # The decision about a request by nothing but the peer of its socket, if that is enough.
        self._enter = self._guard.core.enter_asgi if self._guard is not None and self._guard.needs_only_peer else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()" if self._guard is None else self._guard.show(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; other protocols than HTTP and web sockets pass through."""
        app = self.app
        if scope["type"] != "http":
            handle = self._handle_websocket if scope["type"] == "websocket" else app
            await handle(scope, receive, send)
            return
        guard = self._guard
        if "endpoint" in scope:
            guard = self._guard_after_routing(scope)
        check = sender = None
        limits: RequestLimits | None = scope.get(LIMITS)
        if limits is None:
            # The outermost middleware adds the fields of all guards.
            enter = self._enter
            if enter is None or guard is not self._guard or scope.get("method") == "OPTIONS":
                limits = RequestLimits()
                sender = ResponseSender(limits, scope, send, start_response, end_response)
            else:
                client = scope.get("client")
                peer = client[0] if client else None
                limits, sender, check = enter(peer, scope, send, start_response, end_response)
                if check is None:
                    # The request is admitted.
                    guard = None
            scope[LIMITS] = limits
            send = sender
        try:
            if guard is not None:
                denied = await self._decide(guard, check, limits, scope, receive)
                if denied is not None:
                    app = denied[1]
            await app(scope, receive, send)
        finally:
            # Under anyio a cancelled task is cancelled again at every await.
            if sender is not None and (limits.holds or not sender.has_started):
                failed = ResponseStart(_INTERNAL_SERVER_ERROR, [], scope)
                await drive_async(abandon(limits, failed, has_started=sender.has_started))

    def _guard_after_routing(self, scope: Scope) -> Guard | None:
        """Return the guard for a request for which a router has chosen a mount or a route already."""
        return self._guard_of_mount if matched_route(scope) is None else self._guard_of_route

    async def _handle_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a web socket: its handshake is a request, which is done when the socket is closed."""
        limits: RequestLimits | None = scope.get(LIMITS)
        is_outermost = limits is None
        if limits is None:
            scope[LIMITS] = limits = RequestLimits()
        sender = _HandshakeSender(limits, scope, send)
        try:
            guard = self._guard_after_routing(scope) if "endpoint" in scope else self._guard
            if not self._limits_websockets:
                # Dependencies of the route may limit it.
                guard = None
            denied = None if guard is None else await drive_async(decide(guard, self._info(scope, receive), limits))
            if denied is None:
                await self.app(scope, receive, sender if is_outermost else send)
            else:
                await refuse_handshake(denied[1], scope, receive, sender if is_outermost else send)
        finally:
            if is_outermost:
                failed = ResponseStart(_INTERNAL_SERVER_ERROR, [], scope)
                await drive_async(abandon(limits, failed, has_started=sender.has_started))

    async def _decide(
        self, guard: Guard, check: GuardCheck | None, limits: RequestLimits, scope: Scope, receive: Receive
    ) -> Denied:
        if check is None or check.is_concluded or guard.on_outage is not None:
            return await drive_async(decide(guard, self._info(scope, receive), limits, check=check))
        # Only the store has to be asked.
        operation = check.ask_async(is_first=True)
        while operation is not None:
            await operation
            operation = check.ask_async(is_first=False)
        problem, settling = check.conclude(limits)
        if problem is not None:
            return await drive_async(refuse(guard, self._info(scope, receive), limits, problem, settling))
        for call in settling or ():
            await call
        return None


async def start_response(limits: RequestLimits, scope: Scope, send: Send, message: Message) -> None:
    """Refund what does not count, and send the start of the response with the header fields."""
    headers = list(message.get("headers", ()))
    await drive_async(begin(limits, ResponseStart(message["status"], headers, scope), lambda: headers))
    await send({**message, "headers": headers + encoded(limits.fields())})


async def end_response(limits: RequestLimits, send: Send, message: Message) -> None:
    """Send the last message of the response, and end its reservations."""
    await send(message)
    await drive_async(end(limits))


async def receive_nothing() -> Message:
    """Stand for the messages of a web socket, which has none before it is accepted."""
    raise RuntimeError("a web socket has no body")


class _HandshakeSender:
    """The ``send`` of a web socket, which adds the header fields to the response to its handshake."""

    def __init__(self, limits: RequestLimits, scope: Scope, send: Send) -> None:
        self._limits = limits
        self._scope = scope
        self._send = send
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        status = _HANDSHAKE_STATUSES.get(message["type"])
        if self.has_started or status is None:
            await self._send(message)
            return
        self.has_started = True
        headers = list(message.get("headers", ()))
        start = ResponseStart(message.get("status", status), headers, self._scope)
        await drive_async(finish(self._limits, start))
        if message["type"] != "websocket.close":
            message = {**message, "headers": headers + encoded(self._limits.fields())}
        await self._send(message)


async def refuse_handshake(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Let an application of HTTP respond to the handshake of a web socket."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        # The server responds with 403.
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        return

    async def respond(message: Message) -> None:
        kind = message["type"]
        await send({**message, "type": kind if kind.startswith("websocket.") else f"websocket.{kind}"})

    await app(scope, receive, respond)


def encoded(fields: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return header fields in the form of ASGI."""
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in fields]
