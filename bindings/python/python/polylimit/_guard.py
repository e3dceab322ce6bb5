"""The options of a limit, which are the same for every framework and are validated when they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from polylimit import keys
from polylimit._charges import Charges, Cost, Policies, Spent, refuse_asynchronous
from polylimit._core import (
    AsyncLimiter,
    ClientAddressRules,
    CoreGuard,
    Decision,
    InvalidArgumentError,
    Limiter,
    Policy,
    PolylimitError,
    Problem,
    advice,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from typing_extensions import Never

Outcome = tuple[Policy, Decision]
KeyPart = keys.KeyPart | str
Key = KeyPart | Sequence[KeyPart] | Callable[[Any], Any]


class Options(TypedDict, total=False):
    """The options that every integration has, besides its limiter and its policy.

    A limiter with a configuration, and no policy here, decides by the rules of its document: by the request's method,
    path, peer and headers, by its ``user`` as the framework knows it, and by ``attributes``.
    """

    #: A function of the request that returns what else the rules are about, as a dict such as ``{"plan": "gold"}``.
    #: With a ``user`` in it, the framework's user is not looked up. Only where the limiter decides by its
    #: configuration, whose document then says what the options key, missing_key, client_address, cost and scope say
    #: otherwise.
    attributes: Callable[[Any], Any] | None
    #: By which key a request counts: a function of the request, or one or several of :mod:`polylimit.keys`; the default
    #: is the client's address.
    key: Key | None
    #: How a request without a key counts, such as that of an anonymous user: by the client's ``"address"``, with all
    #: others in one budget (``"share"``), or not at all, answered by 400 (``"refuse"``).
    missing_key: str
    #: How the client's address is found for requests without a key: ``keys.client_address(...)``. The default is that
    #: of ``key``, or the peer of the socket.
    client_address: keys.KeyPart | ClientAddressRules | None
    #: Units that a request spends: a number, or a function of the request; 0 to 10^12, and 1 by default. Policies of a
    #: list may have costs of their own: ``{"tokens": cost_of_tokens}`` with the names or quotas of the list; the others
    #: cost 1. A number that a policy can never admit is refused.
    cost: Cost
    #: A function of the response, not asynchronous: a request counts only if it returns true. The cost is reserved
    #: before the request and refunded after it. A request that fails without a response has the status 500.
    count: Callable[[Any], Any] | None
    #: The units that the request has spent, 0 to 10^12: as the response reports them, such as ``"usage:total"``,
    #: ``"header:x-tokens"`` or ``"3*usage:input + 15*usage:output"``; or as a function of the response, not
    #: asynchronous, returns them, where ``None`` is the cost. It is read or called when the response is done or its
    #: client has gone. The cost is reserved until then, under every policy of the limit; without ``spent``, only
    #: policies with a quota such as ``"20 concurrent"`` are. Policies of a list may have their own: with
    #: ``{"tokens": "usage:total"}`` only that policy is reserved. A response that reports nothing has spent the cost.
    spent: Spent
    #: How long a reservation lasts after its last renewal, in seconds or as a ``timedelta``: so long its units stay set
    #: aside when the process is killed. The default is 30 s.
    ttl: float | timedelta | None
    #: How long the reservation of one request is renewed; the default is one hour.
    max_age: float | timedelta | None
    #: How long a request that would be denied may be held, in seconds or as a ``timedelta``, up to 60 s: until it would
    #: be admitted, if that is in time, and then it is decided again. The default, 0, holds none. In a framework that is
    #: not asynchronous the request's thread waits. A leaky bucket holds a request until its turn.
    wait: float | timedelta | None
    #: How many requests may be held at the same time, 1 to 1,000,000; a further one is denied at once. The default
    #: is 100.
    max_waiting: int | None
    #: A function of the request: requests for which it is true are not limited.
    skip: Callable[[Any], Any] | None
    #: The methods that are limited, such as ``["POST"]``; by default all. ``GET`` includes ``HEAD``, which runs the
    #: same handler.
    methods: Sequence[str] | str
    #: Whether ``HEAD`` is separate from ``GET``: ``GET`` in ``methods`` does not include it, and on each route it has a
    #: budget of its own.
    separate_head: bool
    #: Whether a limit that is not attached to a handler counts preflights, by which browsers ask whether a page of
    #: another origin may send a request. By default it does not, unless ``OPTIONS`` is one of its ``methods``.
    count_preflights: bool
    #: The origins whose pages may read denials, such as ``["https://app.example"]``, or ``"*"`` for all: a denial to a
    #: request from one of them has the fields that browsers need, unless the response has them already. None by
    #: default: a middleware for CORS outside of the limit adds them as well.
    cors_origins: Sequence[str] | str
    #: A function of the request and the :class:`Denial` that returns the response to every request that the limit does
    #: not let through; ``denial.problem.status`` is 429, 503 in an outage, or 400 without a key.
    on_denied: Callable[[Any, Denial], Any] | None
    #: A function of the request and the :class:`Outage`, called for every decision that was made without the store, and
    #: when none could be made. It admits the request by ``True``, denies it by ``False``, and leaves the decision to
    #: the outage policy by ``None``.
    on_outage: Callable[[Any, Outage], Any] | None
    #: The status of a request over its limit, 400 to 599; the default is 429.
    status: int | None
    #: The sentence in the body of a request over its limit.
    message: str | None
    #: Whether the limit decides, spends and reports without ever denying.
    dry_run: bool
    #: Which header fields show clients their limits, as in :func:`polylimit.header_fields`.
    headers: str
    #: 1 to 256 bytes of text. Quotas without a name have a separate budget in each scope. A policy with a name is
    #: shared by all limits that use it.
    scope: str | None


@dataclass(frozen=True)
class Denial:
    """A request that a limit does not let through, for ``on_denied``."""

    #: Each policy that was applied to the request, with its decision.
    outcomes: Sequence[Outcome]
    #: The default response: ``problem.status`` is 429, 503 in an outage, or 400 without a key.
    problem: Problem


@dataclass(frozen=True)
class Outage:
    """A decision without the store, for ``on_outage``."""

    #: Why no decision could be made; ``None`` when the outage policy decided.
    error: PolylimitError | None
    #: Each policy with its decision; empty when there is an error.
    outcomes: Sequence[Outcome]


class Guard:
    """The validated options of a limit.

    ``limiter_types`` are the classes of limiters that the framework can use. With ``per_route``, quotas without a name
    have a separate budget on each route, unless a scope is given. ``is_attached`` says that the limit belongs to a
    handler, which runs for every request that meets the limit.
    """

    def __init__(
        self,
        limiter: Any,
        policy: Policies = None,
        *,
        attributes: Callable[[Any], Any] | None = None,
        key: Key | None = None,
        missing_key: str = "address",
        client_address: keys.KeyPart | ClientAddressRules | None = None,
        cost: Cost = 1,
        count: Callable[[Any], Any] | None = None,
        spent: Spent = None,
        ttl: float | timedelta | None = None,
        max_age: float | timedelta | None = None,
        wait: float | timedelta | None = None,
        max_waiting: int | None = None,
        skip: Callable[[Any], Any] | None = None,
        methods: Sequence[str] | str = (),
        separate_head: bool = False,
        count_preflights: bool = False,
        cors_origins: Sequence[str] | str = (),
        on_denied: Callable[[Any, Denial], Any] | None = None,
        on_outage: Callable[[Any, Outage], Any] | None = None,
        status: int | None = None,
        message: str | None = None,
        dry_run: bool = False,
        headers: str = "ietf seconds",
        scope: str | None = None,
        limiter_types: tuple[type, ...] = (Limiter, AsyncLimiter),
        per_route: bool = False,
        is_attached: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown_options(unknown)
        self._shown = f"{limiter!r}" if policy is None else f"{limiter!r}, {policy!r}"
        check_limiter(limiter, limiter_types)
        functions = {
            "attributes": attributes,
            "count": count,
            "skip": skip,
            "on_denied": on_denied,
            "on_outage": on_outage,
        }
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name} is of type {type(function).__name__}: allowed is a function")
        if count is not None:
            refuse_asynchronous("count", count)
        #: Whether the rules of the limiter's configuration decide.
        self.by_configuration = policy is None and limiter.admin().configuration() is not None
        if self.by_configuration:
            given: dict[str, object] = {"key": key, "client_address": client_address, "scope": scope}
            given |= {
                "cost": None if cost == 1 else cost,
                "missing_key": None if missing_key == "address" else missing_key,
            }
            _refuse_beside_configuration(given)
        elif attributes is not None:
            raise InvalidArgumentError("attributes need a limiter with a configuration, and no policy")
        parts = [] if self.by_configuration else _key_parts(key)
        charges = Charges(limiter, policy, cost, spent, by_configuration=self.by_configuration)
        rules = next((part.rules for part in parts if isinstance(part, keys.KeyPart) and part.rules is not None), None)
        if client_address is not None:
            rules = client_address.rules if isinstance(client_address, keys.KeyPart) else client_address
            if not isinstance(rules, ClientAddressRules):
                shown = "a part of a key" if rules is None else f"of type {type(rules).__name__}"
                raise TypeError(f"client_address is {shown}: allowed is keys.client_address(...)")
        #: Finds the client's address.
        self.rules = rules or ClientAddressRules()
        #: The functions of the request; ``None`` where the option is no function.
        self.attributes = attributes
        self.key = key if callable(key) else None
        self.cost = charges.cost_of
        #: The same for each policy of the list, where one has a function of its own.
        self.costs = charges.cost_of_each
        self.policy = policy if callable(policy) else None
        self.count = count
        #: Whether a function or the response says what a request has spent.
        self.has_spent = charges.has_spent
        self.skip = skip
        self.on_denied = on_denied
        self.on_outage = on_outage
        self.has_methods = bool(methods)
        self.has_cors_origins = bool(cors_origins)
        #: Whether only requests that run a handler meet the limit.
        self.is_attached = is_attached
        self._uses_address = missing_key == "address"
        self.core = CoreGuard(
            limiter,
            charges.policies,
            by_configuration=self.by_configuration,
            per_request=callable(policy),
            scope=scope,
            per_route=per_route,
            key_parts=[part.text if isinstance(part, keys.KeyPart) else part for part in parts],
            missing_key=missing_key,
            cost=charges.cost,
            costs=charges.costs,
            methods=[methods] if isinstance(methods, str) else methods,
            headers=headers,
            status=status,
            message=message,
            dry_run=dry_run,
            client_address=self.rules,
            count=count,
            spent=charges.spent,
            spent_each=charges.spent_each,
            spent_by=charges.spent_by,
            spent_by_each=charges.spent_by_each if any(charges.spent_by_each) else [],
            ttl=ttl,
            max_age=max_age,
            separate_head=separate_head,
            count_preflights=count_preflights,
            cors_origins=[cors_origins] if isinstance(cors_origins, str) else cors_origins,
            wait=wait,
            max_waiting=max_waiting,
        )
        self.key_parts = self.core.key_parts
        #: The status of a request over its limit.
        self.status = 429 if status is None else status
        #: Whether a part of the key is the user, which may have to be awaited.
        self.has_user = ("user", "") in self.key_parts
        #: Whether all that a decision needs is known before the request reaches this limit, without calling a function.
        functions_of_request = [self.key, self.cost, self.costs, self.policy, skip]
        has_functions = any(function is not None for function in functions_of_request)
        self.is_known_early = not (has_functions or self.has_user or self.by_configuration)
        is_same_for_all = self.is_known_early and not (methods or self.core.is_per_route)
        #: Whether ``core.enter`` decides about a request: by nothing but the peer of its socket.
        self.needs_only_peer = (
            is_same_for_all and [kind for kind, _ in self.key_parts] == ["address"] and self.rules.header is None
        )

    def __repr__(self) -> str:
        return f"Guard({self._shown})"

    def show(self, owner: object) -> str:
        """Return the ``repr`` of the object that has this guard."""
        return f"{type(owner).__name__}({self._shown})"

    def address(self, info: keys.RequestInfo) -> str:
        """Return the key of the client's address."""
        # The peer of a Unix socket is on this host.
        peer = info.peer() or "127.0.0.1"
        header = self.rules.header
        return self.rules.key(peer) if header is None else self.rules.key(peer, info.header(header))

    def key_without(self, info: keys.RequestInfo) -> str | None:
        """Return the key of a request that has none."""
        return self.address(info) if self._uses_address else None

    def key_of_parts(self, info: keys.RequestInfo, user: str | None) -> bytes | str | None:
        """Return the key that is made of parts; when one is missing, that of a request without a key."""
        values: list[str | bytes | None] = []
        for kind, name in self.key_parts:
            if kind == "address":
                values.append(self.address(info))
            elif kind == "user":
                values.append(user or None)
            elif kind == "header":
                values.append(b", ".join(info.header(name)) or None)
            else:
                values.append((info.cookie(name) if kind == "cookie" else info.path(name)) or None)
        key = self.core.join_key(values)
        return self.key_without(info) if key is None else key


class ScopedGuards:
    """The guards of a limit: that of an application, and one for each name under which a part of it has own budgets."""

    def __init__(self, limiter: Any, policy: Policies = None, **options: Any) -> None:
        self._make_guard = partial(Guard, limiter, policy, **options)
        #: The guard of the application, whose options are those of all.
        self.outer = self._make_guard()
        #: Whether a name matters: where quotas have no name, and no scope is given.
        self.has_scopes = self._make_guard(per_route=True).core.is_per_route
        self._scoped: dict[str, Guard] = {}

    def of(self, name: str) -> Guard:
        """Return the guard that has the budgets of a part of the application; without a name, of all of it."""
        if not name or not self.has_scopes:
            return self.outer
        guard = self._scoped.get(name)
        if guard is None:
            guard = self._scoped[name] = self._make_guard(scope=name)
        return guard


def refuse_options_alone(policy: Policies, options: Mapping[str, Any]) -> None:
    """Raise for the options of a limit that has no limiter."""
    if policy is not None or options:
        refuse_unknown_options({name: None for name in options if name not in Options.__annotations__})
        raise TypeError("options need a limiter: without one nothing would be limited")


def _refuse_beside_configuration(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{name} is given, and the limiter decides by its configuration: its document says it"
            )


def refuse_unknown_options(options: Mapping[str, Any]) -> None:
    """Raise for unknown options; for one of another rate limiter, the error says what to use instead."""
    for name in options:
        known = ["limiter", "policy", *Options.__annotations__]
        raise TypeError(f'unknown option "{name}": {advice(name, known)}')


def check_limiter(limiter: Any, limiter_types: tuple[type, ...]) -> None:
    """Raise unless a limiter is of one of these classes."""
    if isinstance(limiter, limiter_types):
        return
    allowed = " or ".join(kind.__name__ for kind in limiter_types)
    if isinstance(limiter, AsyncLimiter):
        raise TypeError(f"limiter is an AsyncLimiter: allowed is a {allowed}, such as its .blocking")
    if isinstance(limiter, Limiter):
        raise TypeError(f"limiter is a Limiter: allowed is a {allowed}, such as its .asynchronous")
    raise TypeError(f"limiter is of type {type(limiter).__name__}: allowed is a {allowed} of polylimit")


def _key_parts(key: Any) -> list[KeyPart]:
    if key is None:
        return [keys.client_address()]
    if callable(key):
        return []
    parts = list(key) if isinstance(key, (list, tuple)) else [key]
    for part in parts or [key]:
        if not isinstance(part, (str, keys.KeyPart)):
            raise TypeError(
                f"key is of type {type(part).__name__}: allowed is a function of the request, or one or several of "
                "polylimit.keys"
            )
    return parts
