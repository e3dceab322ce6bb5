"""What requests spend under the policies of a limit: the options ``policy``, ``cost`` and ``spent``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit._core import InvalidArgumentError, Policy, Quota

if TYPE_CHECKING:
    from polylimit._core import AsyncLimiter, Limiter

T = TypeVar("T")
PolicyName = str | Quota | Policy | None
Policies = PolicyName | Sequence[PolicyName] | Callable[[Any], Any]
Function = Callable[[Any], Any]
# The keys are policies. The type of a mapping's keys is invariant: any but this one refuses a variable of the type
# dict[str, int].
Cost = int | Function | Mapping[Any, int | Function]
Spent = str | Function | Mapping[Any, str | Function | None] | None


class Charges:
    """The validated options ``policy``, ``cost`` and ``spent``: what they have for all policies and for single ones."""

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        policy: Policies,
        cost: Cost,
        spent: Spent,
        *,
        by_configuration: bool,
    ) -> None:
        _check_policy(policy)
        #: The policies of the limit; ``None`` for the only one of the limiter, and where a function or the
        #: configuration says them.
        self.policies = None if policy is None or callable(policy) else policy_list(policy)
        costs: Sequence[int | Function | None] = ()
        spent_each: Sequence[str | Function | None] = ()
        for option, given in (("cost", cost), ("spent", spent)):
            if isinstance(given, Mapping):
                _refuse_mapping_without_list(option, policy, by_configuration=by_configuration)
                self.policies = [limiter.policy_for()] if self.policies is None else self.policies
        if isinstance(cost, Mapping):
            costs = _for_each("cost", cost, self.policies or ())
        if isinstance(spent, Mapping):
            spent_each = _for_each("spent", spent, self.policies or ())
        #: The fixed costs, for all policies and by their position.
        self.cost = 1 if callable(cost) or isinstance(cost, Mapping) else cost
        self.costs = [None if callable(one) else one for one in costs]
        #: The functions of the request, in the same way; ``None`` where there is none.
        self.cost_of = cost if callable(cost) else None
        own = [one if callable(one) else None for one in costs]
        self.cost_of_each = own if any(own) else None
        for_all = None if isinstance(spent, Mapping) else spent
        self.has_spent = for_all is not None or any(one is not None for one in spent_each)
        _check_spent("spent", for_all)
        for one, given in zip(self.policies or (), spent_each, strict=False):
            _check_spent(f'spent["{_name(one)}"]', given)
        #: What the response reports as spent, as text, for all policies and by their position.
        self.spent_by = for_all if isinstance(for_all, str) else None
        self.spent_by_each = [one if isinstance(one, str) else None for one in spent_each]
        #: The functions of the response, in the same way.
        self.spent = None if isinstance(for_all, str) else for_all
        self.spent_each = [None if isinstance(one, str) else one for one in spent_each]


def policy_list(given: Any) -> list[Any]:
    """Return the policies of a list or of a single one; ``None`` is an empty list."""
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]


def refuse_asynchronous(name: str, given: Function) -> None:
    """Raise for an asynchronous function where it is not awaited: its coroutine would be true for every response."""
    while isinstance(given, partial):
        given = given.func
    # Calling an object calls the method of its class.
    if iscoroutinefunction(given) or (callable(given) and iscoroutinefunction(type(given).__call__)):
        called = getattr(given, "__qualname__", type(given).__qualname__)
        raise InvalidArgumentError(
            f"{name} is {called}, which is asynchronous: allowed is a function that returns its result at once"
        )


def _check_policy(policy: Any) -> None:
    for one in [policy] if callable(policy) else policy_list(policy):
        if not (callable(policy) or isinstance(one, (str, Quota, Policy))):
            raise TypeError(
                f"policy is of type {type(one).__name__}: allowed are str, Quota, Policy, a list of them, and a "
                "function of the request"
            )


def _check_spent(name: str, given: Any) -> None:
    if given is None or isinstance(given, str):
        return
    if not callable(given):
        raise TypeError(
            f'{name} is of type {type(given).__name__}: allowed is a function, or text such as "usage:total"'
        )
    refuse_asynchronous(name, given)


def _refuse_mapping_without_list(option: str, policy: Policies, *, by_configuration: bool) -> None:
    """Raise unless the policies are known that a mapping is about."""
    allowed = "a number or a function of the request" if option == "cost" else "text or a function of the response"
    if callable(policy):
        raise InvalidArgumentError(
            f"{option} is a mapping, and policy is a function of the request: allowed is {allowed}"
        )
    if by_configuration:
        raise InvalidArgumentError(
            f"{option} is a mapping, and the rules of the limiter's configuration choose the policies: allowed is "
            f"{allowed}"
        )


def _name(policy: str | Quota | Policy) -> str:
    """Return the name of a policy, or its quotas as text."""
    return policy.name if isinstance(policy, Policy) else str(policy)


def _for_each(option: str, values: Mapping[Any, T], policies: Sequence[Any]) -> list[T | None]:
    """Return what a mapping has for each of the policies; ``None`` where it has nothing."""
    names = [_name(one) for one in policies]
    found: dict[str, T] = {}
    # The core refuses an empty list.
    for policy, value in values.items() if names else ():
        if not isinstance(policy, (str, Quota, Policy)):
            raise TypeError(f"{option} has a key of type {type(policy).__name__}: allowed are str, Quota and Policy")
        name = _name(policy)
        if name not in names:
            allowed = ", ".join(f'"{one}"' for one in names)
            raise InvalidArgumentError(
                f'{option} has the policy "{name}", which is not one of the limit: allowed are {allowed}'
            )
        if name in found:
            raise InvalidArgumentError(f'{option} has the policy "{name}" as two keys: leave out one of the two')
        found[name] = value
    return [found.get(name) for name in names]
