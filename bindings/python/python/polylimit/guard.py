"""The options of a limit, which are the same for every framework and are validated when they are given."""

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
    Policy,
    PolylimitError,
    Problem,
    Quota,
    Request,
    SinglePolicyGuard,
    header_fields,
    suggestion,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Never

Outcome = tuple[Policy, Decision]
PolicyName = Union[str, Quota, None]
Policies = Union[PolicyName, list[PolicyName], tuple[PolicyName, ...]]
Key = Union[keys.KeySource, Callable[[Any], Any]]
Cost = Union[int, Callable[[Any], Any]]

#: The longest scope that a limiter takes, in bytes.
_MAX_SCOPE_BYTES = 256
_ALLOWED_POLICIES = (
    'allowed are a policy\'s name, quotas such as "100/minute", and a list of one or more different ones'
)
#: The key of a request whose ``key`` returns ``None``.
_DEFAULT_KEY = keys.client_address()


@dataclass(frozen=True)
class Denial:
    """A denied request, for ``on_denied`` and ``on_outage``."""

    #: Each policy that was applied, with its decision.
    outcomes: Sequence[Outcome]
    #: The default response: ``problem.status`` is 429, or 503 when the store could not be asked.
    problem: Problem


class Guard:
    """The validated options of a limit.

    ``limiter_types`` are the classes of limiters that the framework can use. With ``per_route``, quotas without a name
    have a separate budget on each route, unless a scope is given.
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
        limiter_types: tuple[type, ...] = (Limiter, AsyncLimiter),
        per_route: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown_options(unknown)
        _check_limiter(limiter, limiter_types)
        # Raises for an unknown style.
        header_fields([], style=headers)
        functions = {"count": count, "skip": skip, "on_denied": on_denied, "on_outage": on_outage}
        for name, function in functions.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name} is of type {type(function).__name__}: allowed is a function")
        if count is not None:
            refuse_asynchronous("count", count)
        if not callable(cost):
            # Raises for a cost that no request may have.
            Request("", cost=cost)
        self.limiter = limiter
        self.key = keys.client_address() if key is None else _check_key(key)
        self.cost = cost
        self.count = count
        self.skip = skip
        self.on_denied = on_denied
        self.on_outage = on_outage
        self.headers = headers
        #: Whether the key, the cost or ``skip`` is a function of the framework's request.
        self.needs_request = callable(self.key) or callable(cost) or skip is not None
        #: Whether the key depends only on the peer of the socket.
        self.is_keyed_by_peer = isinstance(self.key, keys.ClientAddress) and self.key.rules.header is None
        self._given = policy_list(policy)
        names = [registered_name(limiter, one) for one in self._given]
        refuse_duplicates(policy, self._given, [name or _parse_quotas(one) for name, one in zip(names, self._given)])
        #: The names of the policies by route.
        self._policies_by_route: dict[str, tuple[str, ...]] = {}
        #: The names of the policies; ``None`` where they depend on the route.
        self.policies: tuple[str, ...] | None = None
        if not per_route or scope is not None or all(names):
            self.policies = self._names_in(scope)
        #: The fast form of this guard, if one policy applies to every request in the same way.
        self.fast: SinglePolicyGuard | None = None
        if self.policies is not None and len(self.policies) == 1 and skip is None and count is None:
            rules = self.key.rules if isinstance(self.key, keys.ClientAddress) else None
            self.fast = SinglePolicyGuard.create(self, limiter, self.policies[0], cost, rules, headers)

    def policy_names(self, info: keys.RequestInfo) -> tuple[str, ...]:
        """Return the names of the policies that apply to a request."""
        if self.policies is not None:
            return self.policies
        route = info.route() or ""
        known = self._policies_by_route.get(route)
        if known is None:
            known = self._policies_by_route[route] = self._names_in(_scope_of(route))
        return known

    def _names_in(self, scope: str | None) -> tuple[str, ...]:
        return tuple(self.limiter.policy_for(policy, scope).name for policy in self._given)


def refuse_unknown_options(options: dict[str, Any]) -> None:
    """Raise for unknown options; for one of another rate limiter, the error says what to use instead."""
    for name in options:
        advice = (
            suggestion(name)
            or "allowed are limiter, policy, key, cost, count, skip, on_denied, on_outage, headers and scope"
        )
        raise TypeError(f'unknown option "{name}": {advice}')


def _check_limiter(limiter: Any, limiter_types: tuple[type, ...]) -> None:
    if isinstance(limiter, limiter_types):
        return
    allowed = " or ".join(kind.__name__ for kind in limiter_types)
    if isinstance(limiter, AsyncLimiter):
        raise TypeError(f"limiter is an AsyncLimiter: allowed is a {allowed}, such as its .blocking")
    raise TypeError(f"limiter is of type {type(limiter).__name__}: allowed is a {allowed} of polylimit")


def _check_key(key: Any) -> Key:
    if callable(key) or callable(getattr(key, "read", None)):
        return key  # type: ignore[no-any-return]
    raise TypeError(
        f"key is of type {type(key).__name__}: allowed is a function of the request, or one of polylimit.keys"
    )


def refuse_asynchronous(name: str, given: Callable[..., Any]) -> None:
    """Raise for an asynchronous function where it is not awaited: its coroutine would be true for every response."""
    while isinstance(given, partial):
        given = given.func
    # Calling an object calls the method of its class.
    if iscoroutinefunction(given) or (callable(given) and iscoroutinefunction(type(given).__call__)):
        called = getattr(given, "__qualname__", type(given).__qualname__)
        raise InvalidArgumentError(
            f"{name} is {called}, which is asynchronous: allowed is a function that gives true or false at once"
        )


def policy_list(given: Policies) -> tuple[PolicyName, ...]:
    """Return the policies of a guard; raise for an empty list."""
    policies = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not policies:
        raise InvalidArgumentError(f"policy is {given!r}: {_ALLOWED_POLICIES}")
    return policies


def refuse_duplicates(given: Policies, policies: Sequence[PolicyName], identities: Sequence[object]) -> None:
    """Raise for a policy to which a request would be charged twice."""
    for at, one in enumerate(identities):
        if one in identities[:at]:
            raise InvalidArgumentError(
                f"policy is {given!r}, where {policies[at]!r} is there before: {_ALLOWED_POLICIES}"
            )


def registered_name(limiter: Any, policy: PolicyName) -> str | None:
    """Return the name of a registered policy, or ``None`` for quotas; raise for everything else."""
    if policy is not None and _parse_quotas(policy) is not None:
        return None
    name: str = limiter.policy_for(policy).name
    return name


def _parse_quotas(policy: PolicyName) -> object:
    """Return a value that is equal for all forms of the same quotas; ``None`` if the argument is no quotas."""
    try:
        return Policy("any", policy).quotas  # type: ignore[arg-type]
    except (PolylimitError, TypeError):
        return None


def _scope_of(route: str) -> str | None:
    """Return the scope of a route: its name, or a digest of a name that is too long."""
    if len(route.encode()) > _MAX_SCOPE_BYTES:
        return sha256(route.encode()).hexdigest()
    return route or None


def key_of(guard: Guard, request: Any, info: keys.RequestInfo) -> Any:
    """Return the key of a request, or an awaitable of it."""
    key = guard.key
    return key(request) if callable(key) else key.read(info)


def key_or_address(key: Any, info: keys.RequestInfo) -> Any:
    """Return the key, or the client's address for a request that has none, such as that of an anonymous user."""
    return _DEFAULT_KEY.read(info) if key is None else key


def cost_of(guard: Guard, request: Any) -> Any:
    """Return the cost of a request, or an awaitable of it."""
    return guard.cost(request) if callable(guard.cost) else guard.cost
