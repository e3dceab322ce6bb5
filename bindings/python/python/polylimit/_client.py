"""The options of throttled clients, which are the same for every library and are validated when they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from polylimit._charges import refuse_asynchronous
from polylimit._core import InvalidArgumentError, Request, Throttle
from polylimit._guard import check_limiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from polylimit import AsyncLimiter, Backoff, Limiter, Policy, Quota

L = TypeVar("L", "Limiter", "AsyncLimiter")


class Client(Generic[L]):
    """The options of a throttled client."""

    def __init__(
        self,
        limiter: L,
        policy: str | Quota | Policy | None,
        *,
        kind: type[L],
        key: Callable[[Any], str | bytes],
        cost: int,
        backoff: Backoff | None,
    ) -> None:
        check_limiter(limiter, (kind,))
        if not callable(key):
            raise TypeError(f"key is of type {type(key).__name__}: allowed is a function of the request")
        refuse_asynchronous("key", key)
        self.limiter: L = limiter
        self.policy = policy
        self.key = key
        self.cost = Request("", policy, cost=cost).cost
        self.throttle = Throttle(backoff)
        if has_slots(limiter, policy):
            raise InvalidArgumentError(
                "policy has a quota of concurrency, which is reserved and not acquired: allowed are quotas of units"
            )

    def __repr__(self) -> str:
        return f"{self.limiter!r}" if self.policy is None else f"{self.limiter!r}, {self.policy!r}"


def has_slots(limiter: Limiter | AsyncLimiter, policy: str | Quota | Policy | None) -> bool:
    """Whether a policy limits how many run at a time. Raises for a policy that the limiter does not know."""
    status = limiter.admin().configuration()
    if status is not None and status.version == 0:
        # The policies are not there yet.
        return False
    return any(quota.algorithm == "concurrency" for quota in limiter.policy_for(policy).quotas)
