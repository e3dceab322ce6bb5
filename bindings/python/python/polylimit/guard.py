"""What every framework's integration asks for: the options of a limit, looked at when they are given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Callable, Union

from polylimit import keys
from polylimit._core import (
    AsyncLimiter,
    Decision,
    InvalidArgumentError,
    Limiter,
    PlainGuard,
    Policy,
    PolylimitError,
    Problem,
    Quota,
    Request,
    header_fields,
    suggestion,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Never

Outcome = tuple[Policy, Decision]
PolicyName = Union[str, Quota, None]
Policies = Union[PolicyName, list[PolicyName], tuple[PolicyName, ...]]
Key = Union[keys.ReadyKey, Callable[[Any], Any]]
Cost = Union[int, Callable[[Any], Any]]

#: The longest scope that a limiter takes, in bytes.
_LONGEST_SCOPE = 256
_ALLOWED_POLICIES = (
    'allowed are a policy\'s name, quotas such as "100/minute", and a list of one or more different ones'
)
#: Whom a request counts for whose ``key`` gives ``None``.
_BY_ADDRESS = keys.client_address()


@dataclass(frozen=True)
class Denial:
    """A denied request, for ``on_denied`` and ``on_outage``."""

    #: The policies that were applied, each with its decision.
    outcomes: Sequence[Outcome]
    #: What is answered unless told otherwise: ``problem.status`` is 429, or 503 when the store could not be asked.
    problem: Problem


class Guard:
    """The options of a limit, the same for every framework; mistakes in them are refused here.

    ``faces`` are the classes of limiters that the framework can use. A guard of routes gives quotas without a name a
    budget of their own on each route, unless it has a scope.
    """

    def __init__(
        self,
        limiter: Any,
        policy: Policies = None,
        *,
        key: Key | None = None,
        cost: Cost = 1,
        count: Callable[[Any], Any] | None = None,
        skip: Callable[[Any], Any] | None = None,
        on_denied: Callable[[Any, Denial], Any] | None = None,
        on_outage: Callable[[Any, Denial], Any] | None = None,
        headers: str = "ietf",
        scope: str | None = None,
        faces: tuple[type, ...] = (Limiter, AsyncLimiter),
        is_of_routes: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown(unknown)
        _refuse_other_limiters(limiter, faces)
        # Refuses a style that is not known, as soon as it is given.
        header_fields([], style=headers)
        functions = {"count": count, "skip": skip, "on_denied": on_denied, "on_outage": on_outage}
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name} is of type {type(function).__name__}: allowed is a function")
        if count is not None:
            refuse_asynchronous("count", count)
        if not callable(cost):
            # Refuses a cost that no request may have.
            Request("", cost=cost)
        self.limiter = limiter
        self.key = keys.client_address() if key is None else _checked_key(key)
        self.cost = cost
        self.count = count
        self.skip = skip
        self.on_denied = on_denied
        self.on_outage = on_outage
        self.headers = headers
        #: Whether a function of the request is called before it is decided.
        self.asks_request = callable(self.key) or callable(cost) or skip is not None
        #: Whether the other end of the socket says whom a request counts for.
        self.is_by_peer = isinstance(self.key, keys.ClientAddress) and self.key.rules.header is None
        #: In the order in which they were given.
        self._given = several(policy)
        names = [name_of(limiter, one) for one in self._given]
        refuse_repeated(policy, self._given, [name or _quotas_of(one) for name, one in zip(names, self._given)])
        #: The names of the policies on each route that was asked for.
        self._on_routes: dict[str, tuple[str, ...]] = {}
        #: The names of the policies; ``None`` where they depend on the route.
        self.policies: tuple[str, ...] | None = None
        if not is_of_routes or scope is not None or all(names):
            self.policies = self._named(scope)
        #: The same for every request, if it is: then all of it is done in one call.
        self.plain: PlainGuard | None = None
        if self.policies is not None and len(self.policies) == 1 and skip is None and count is None:
            rules = self.key.rules if isinstance(self.key, keys.ClientAddress) else None
            self.plain = PlainGuard.of(self, limiter, self.policies[0], cost, rules, headers)

    def policies_of(self, facts: keys.Facts) -> tuple[str, ...]:
        """Give the names of the policies of a request."""
        if self.policies is not None:
            return self.policies
        route = facts.route() or ""
        known = self._on_routes.get(route)
        if known is None:
            known = self._on_routes[route] = self._named(_scope_of(route))
        return known

    def _named(self, scope: str | None) -> tuple[str, ...]:
        return tuple(self.limiter.policy_for(policy, scope).name for policy in self._given)


def refuse_unknown(options: dict[str, Any]) -> None:
    """Refuse options that are none; those of other rate limiters with the name of ours."""
    for name in options:
        advice = (
            suggestion(name)
            or "allowed are limiter, policy, key, cost, count, skip, on_denied, on_outage, headers and scope"
        )
        raise TypeError(f'unknown option "{name}": {advice}')


def _refuse_other_limiters(limiter: Any, faces: tuple[type, ...]) -> None:
    if isinstance(limiter, faces):
        return
    allowed = " or ".join(face.__name__ for face in faces)
    if isinstance(limiter, AsyncLimiter):
        raise TypeError(f"limiter is an AsyncLimiter: allowed is a {allowed}, such as its .blocking")
    raise TypeError(f"limiter is of type {type(limiter).__name__}: allowed is a {allowed} of polylimit")


def _checked_key(key: Any) -> Key:
    if callable(key) or callable(getattr(key, "of", None)):
        return key  # type: ignore[no-any-return]
    raise TypeError(
        f"key is of type {type(key).__name__}: allowed is a function of the request, or one of polylimit.keys"
    )


def refuse_asynchronous(name: str, given: Callable[..., Any]) -> None:
    """Refuse a function that is not awaited: what it gives would be true for every response."""
    while isinstance(given, partial):
        given = given.func
    # The calls of an object are those of its class.
    if iscoroutinefunction(given) or (callable(given) and iscoroutinefunction(type(given).__call__)):
        called = getattr(given, "__qualname__", type(given).__qualname__)
        raise InvalidArgumentError(
            f"{name} is {called}, which is asynchronous: allowed is a function that gives true or false at once"
        )


def several(given: Policies) -> tuple[PolicyName, ...]:
    """Give the policies of a guard; refuse none."""
    policies = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not policies:
        raise InvalidArgumentError(f"policy is {given!r}: {_ALLOWED_POLICIES}")
    return policies


def refuse_repeated(given: Policies, policies: Sequence[PolicyName], meant: Sequence[object]) -> None:
    """Refuse a policy that a request would spend its cost on twice."""
    for at, one in enumerate(meant):
        if one in meant[:at]:
            raise InvalidArgumentError(
                f"policy is {given!r}, where {policies[at]!r} is there before: {_ALLOWED_POLICIES}"
            )


def name_of(limiter: Any, policy: PolicyName) -> str | None:
    """Give the name of a policy that has one of its own, and ``None`` for quotas; refuse all else."""
    if policy is not None and _quotas_of(policy) is not None:
        return None
    name: str = limiter.policy_for(policy).name
    return name


def _quotas_of(policy: PolicyName) -> object:
    """Give what is equal for all forms of the same quotas."""
    try:
        return Policy("any", policy).quotas  # type: ignore[arg-type]
    except (PolylimitError, TypeError):
        return None


def _scope_of(route: str) -> str | None:
    """Give the scope of a route; a long one is told by a digest."""
    if len(route.encode()) > _LONGEST_SCOPE:
        return sha256(route.encode()).hexdigest()
    return route or None


def key_of(guard: Guard, request: Any, facts: keys.Facts) -> Any:
    """Give the key of a request, or what has to be awaited for it."""
    key = guard.key
    return key(request) if callable(key) else key.of(facts)


def key_or_address(key: Any, facts: keys.Facts) -> Any:
    """Give the key, or the client's address for a request that has none, such as that of an anonymous user."""
    return _BY_ADDRESS.of(facts) if key is None else key


def cost_of(guard: Guard, request: Any) -> Any:
    """Give the cost of a request, or what has to be awaited for it."""
    return guard.cost(request) if callable(guard.cost) else guard.cost
