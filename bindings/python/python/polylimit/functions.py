"""A limit around a function, or around a block of code, that is no handler of a web framework.

>>> from polylimit import Limiter
>>> from polylimit.functions import admitted, limited
>>> limiter = Limiter(policies={"api": "10/s token_bucket"})
>>> @limited(limiter, "api", timeout=60)
... def fetch(number: int) -> int:
...     return number
>>> fetch(7)
7
>>> with admitted(limiter, "nightly", "api", timeout=60):
...     pass
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, TypeVar, cast

from polylimit import AsyncLimiter, AsyncReservation, Limiter, Request, Reservation
from polylimit._client import has_slots
from polylimit._guard import check_limiter

if TYPE_CHECKING:
    from types import TracebackType
    from uuid import UUID

    from polylimit import Decision, Policy, Quota

    _Key = str | bytes | int | UUID

__all__ = ["DeniedError", "admitted", "limited"]

F = TypeVar("F", bound=Callable[..., Any])


class DeniedError(Exception):
    """Raised in place of a call, or of a block, that the limit does not admit within its timeout."""

    #: The denial.
    decision: Decision
    #: Seconds until it would be admitted; ``None`` for never.
    retry_after: float | None

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.retry_after = decision.retry_after
        wait = "for ever" if self.retry_after is None else f"retry after {self.retry_after:.3f} s"
        super().__init__(f"over the limit: {wait}")

    def __reduce__(self) -> tuple[type[DeniedError], tuple[Decision]]:
        return type(self), (self.decision,)


class admitted:  # noqa: N801 - used as a function
    """A block of code that a limit admits: ``with admitted(limiter, "user:42", "10/s", timeout=60):``.

    With an :class:`polylimit.AsyncLimiter`, ``async with``. Under a policy with a quota such as ``"5 concurrent"`` the
    block holds a reservation until it ends, which then spends the cost. An object is one block's.

    Parameters
    ----------
    limiter
        The limiter.
    key
        The client or resource that is limited.
    policy
        A policy's name, or quotas; it may be left out where the limiter has one policy.
    cost
        Units; 1 by default.
    timeout
        Seconds or a ``timedelta``: how long the block waits for its turn. By default it does not wait; ``math.inf``
        waits without a limit.

    Raises
    ------
    DeniedError
        When the block is not admitted in time.
    PolylimitError
        When the limiter could not decide.

    """

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        key: _Key,
        policy: str | Quota | Policy | None = None,
        *,
        cost: int = 1,
        timeout: float | timedelta = 0,
    ) -> None:
        check_limiter(limiter, (Limiter, AsyncLimiter))
        # Raises for what is not valid.
        Request(key, policy, cost=cost)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float, timedelta)):
            raise TypeError(
                f"timeout is of type {type(timeout).__name__}: allowed are seconds as a number, or a timedelta"
            )
        self._limiter = limiter
        self._key = key
        self._options: dict[str, Any] = {"policy": policy, "cost": cost, "timeout": timeout}
        self._reserves = has_slots(limiter, policy)
        # Of all blocks that have begun: one object may serve several at a time, and their reservations are alike.
        self._held: list[Reservation | AsyncReservation] = []

    def __repr__(self) -> str:
        return f"admitted({self._limiter!r}, ..., {self._options['policy']!r})"

    def __enter__(self) -> Decision:
        if isinstance(self._limiter, AsyncLimiter):
            raise TypeError("limiter is an AsyncLimiter: allowed is async with, or its .blocking")
        if not self._reserves:
            return _allowed(self._limiter.acquire(self._key, **self._options))
        reservation = self._limiter.reserve(self._key, commit_at_end=True, **self._options)
        decision = _allowed(reservation.decision)
        self._held.append(reservation)
        return decision

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reservation = self._held.pop() if self._held else None
        if isinstance(reservation, Reservation):
            # A block that raises has worked, too.
            reservation.commit()

    async def __aenter__(self) -> Decision:
        limiter = self._limiter
        if isinstance(limiter, Limiter):
            limiter = limiter.asynchronous
        if not self._reserves:
            return _allowed(await limiter.acquire(self._key, **self._options))
        reservation = await limiter.reserve(self._key, commit_at_end=True, **self._options)
        decision = _allowed(reservation.decision)
        self._held.append(reservation)
        return decision

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reservation = self._held.pop() if self._held else None
        if isinstance(reservation, AsyncReservation):
            await reservation.commit()


def _allowed(decision: Decision) -> Decision:
    if not decision:
        raise DeniedError(decision)
    return decision


class limited:  # noqa: N801 - used as a decorator
    """Limits the calls of a function: each waits for its turn, at most for the timeout.

    ``@limited(limiter, "10/s", timeout=60)``, above a function or a coroutine function. A function that is no coroutine
    waits on its thread, with a ``Limiter``; a coroutine function takes either class. Under a policy with a quota such
    as ``"5 concurrent"`` a call holds a reservation until it ends, which then spends the cost.

    Parameters
    ----------
    limiter
        The limiter.
    policy
        A policy's name, or quotas; it may be left out where the limiter has one policy.
    key
        The key, or a function of the call's arguments that returns it. By default the module and the name of the
        function.
    cost
        Units of each call; 1 by default.
    timeout
        Seconds or a ``timedelta``: how long a call waits for its turn. By default it does not wait; ``math.inf`` waits
        without a limit.

    Raises
    ------
    InvalidArgumentError
        When the policy is not known, or another option is not valid.
    DeniedError
        By a call that is not admitted in time.
    PolylimitError
        By a call for which the limiter could not decide.

    """

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        policy: str | Quota | Policy | None = None,
        *,
        key: _Key | Callable[..., _Key] | None = None,
        cost: int = 1,
        timeout: float | timedelta = 0,
    ) -> None:
        self._limiter = limiter
        self._key = key
        self._policy = policy
        self._options: dict[str, Any] = {"cost": cost, "timeout": timeout}
        # Raises for what is not valid.
        admitted(limiter, "" if key is None or callable(key) else key, policy, **self._options)

    def __repr__(self) -> str:
        return f"limited({self._limiter!r}, {self._policy!r})"

    def _scope(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> admitted:
        if self._key is None:
            key: _Key = f"{function.__module__}.{function.__qualname__}"
        else:
            key = self._key(*args, **kwargs) if callable(self._key) else self._key
        return admitted(self._limiter, key, self._policy, **self._options)

    def __call__(self, function: F) -> F:
        """Limit a function."""
        if not callable(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
            shown = getattr(function, "__qualname__", f"of type {type(function).__name__}")
            raise TypeError(f"the decorated function is {shown}: allowed is a function that is no generator")
        if iscoroutinefunction(function):

            @wraps(function)
            async def wait(*args: Any, **kwargs: Any) -> Any:
                async with self._scope(function, args, kwargs):
                    return await function(*args, **kwargs)

            return cast("F", wait)
        if isinstance(self._limiter, AsyncLimiter):
            raise TypeError(
                f"limiter is an AsyncLimiter, and {function.__qualname__} is no coroutine function: allowed is a "
                "Limiter, such as its .blocking"
            )

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._scope(function, args, kwargs):
                return function(*args, **kwargs)

        return cast("F", call)
