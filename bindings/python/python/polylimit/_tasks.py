"""What the limits of task queues share: a task is checked before it runs, and goes back to its queue when it is denied.

Each queue puts tasks back in its own way: :mod:`polylimit.celery`, :mod:`polylimit.rq`, :mod:`polylimit.dramatiq`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from hashlib import sha256
from inspect import iscoroutinefunction, unwrap
from random import randrange
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from polylimit import InvalidArgumentError, Limiter, PolylimitError, Request
from polylimit._client import has_slots
from polylimit._guard import Guard, check_limiter
from polylimit.functions import DeniedError

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import Unpack

    from polylimit import Policy, Quota, Reservation

    _Key = str | bytes | int | UUID

F = TypeVar("F", bound=Callable[..., Any])

#: The longest id of a reservation, in bytes.
_ID_SIZE = 64


class TaskOptions(TypedDict, total=False):
    """The options of a limit of tasks, besides its limiter and its policy."""

    #: The key, or a function of the task's arguments that returns it. By default the task's name.
    key: _Key | Callable[..., _Key] | None
    #: Units of each task; 1 by default.
    cost: int
    #: How long a slot stays taken after the worker was killed, in seconds or as a ``timedelta``; 30 s by default.
    ttl: float | timedelta | None
    #: How long the slot of a running task is renewed; one hour by default.
    max_age: float | timedelta | None
    #: The longest wait in the queue until a denied task asks again, in seconds or as a ``timedelta``: 1 s or more; ten
    #: minutes by default.
    max_delay: float | timedelta


class TaskLimit:
    """The validated options of a limit of tasks."""

    def __init__(
        self, limiter: Limiter, policy: str | Quota | Policy | None = None, **options: Unpack[TaskOptions]
    ) -> None:
        unknown = next((name for name in options if name not in TaskOptions.__annotations__), None)
        if unknown is not None:
            raise TypeError(f'unknown option "{unknown}": allowed are {", ".join(TaskOptions.__annotations__)}')
        check_limiter(limiter, (Limiter,))
        self._limiter = limiter
        self._policy = policy
        self._key = options.get("key")
        self._terms: dict[str, Any] = {"ttl": options.get("ttl"), "max_age": options.get("max_age")}
        # These raise for what is not valid.
        self._cost = Request("" if callable(self._key) else self._key or "", policy, cost=options.get("cost", 1)).cost
        has_slots(limiter, policy)
        Guard(Limiter(), "1 concurrent", **self._terms)
        longest = options.get("max_delay", 600)
        self._max_delay = longest.total_seconds() if isinstance(longest, timedelta) else longest
        if not self._max_delay >= 1:
            raise InvalidArgumentError(f"max_delay is {longest}: allowed is 1 second or more")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._limiter!r}, {self._policy!r})"

    def start(self, task_id: str, name: str, args: Any, kwargs: Any) -> HeldTask:
        """Decide about a task; raise :class:`DeniedError` when it may not run now.

        A task that a queue hands out again has the same id, and continues in the slot of the worker that was killed.
        """
        key = self._key(*args, **kwargs) if callable(self._key) else self._key
        request: tuple[_Key, str | Quota | Policy | None] = (name if key is None else key, self._policy)
        reservation = None
        if has_slots(self._limiter, self._policy):
            long = len(task_id.encode()) > _ID_SIZE
            id_ = sha256(task_id.encode()).hexdigest() if long else task_id
            reservation = self._limiter.reserve(*request, cost=self._cost, id=id_, commit_at_end=True, **self._terms)
            decision = reservation.decision
        else:
            decision = self._limiter.check(*request, cost=self._cost)
        if not decision:
            raise DeniedError(decision)
        return HeldTask(reservation, lambda: self._limiter.refund(*request, cost=self._cost))

    def delay(self, denied: DeniedError) -> int:
        """Return after how many whole seconds a denied task asks again; raise when it can never be admitted."""
        if denied.retry_after is None:
            raise denied
        seconds = math.ceil(min(denied.retry_after, self._max_delay)) or 1
        # Tasks that were denied together do not come back together.
        return seconds + randrange(seconds // 4 + 1)  # noqa: S311 - no secret

    def around(
        self,
        function: F,
        current: Callable[[Callable[..., Any]], tuple[str, str] | None],
        put_back: Callable[[int], Any],
        postponed: type,
    ) -> F:
        """Return a function that is limited where a worker runs it as a task.

        ``current`` returns the id and the name of the task whose function this is, and ``None`` for any other call.
        ``put_back`` returns or raises a ``postponed``, which the queue takes for a task that has not run.
        """
        if not callable(function) or iscoroutinefunction(function):
            shown = getattr(function, "__qualname__", f"of type {type(function).__name__}")
            raise TypeError(f"the decorated function is {shown}: allowed is a function that is no coroutine function")

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            task = current(function)
            try:
                held = self.start(*(task or ("", _name(function))), args, kwargs)
            except DeniedError as denied:
                if task is None:
                    raise
                return put_back(self.delay(denied))
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                held.end(has_run=not isinstance(error, postponed))
                raise
            held.end(has_run=not isinstance(result, postponed))
            return result

        return cast("F", call)


class HeldTask:
    """What a task that runs has taken."""

    def __init__(self, reservation: Reservation | None, refund: Callable[[], object]) -> None:
        self._reservation = reservation
        self._refund = refund

    def end(self, *, has_run: bool) -> None:
        """Free the slot; give back the units of a task that has not run, because another limit denies it."""
        # The task is not run again for this: a slot frees itself after its ttl.
        with suppress(PolylimitError):
            if self._reservation is not None:
                (self._reservation.commit if has_run else self._reservation.cancel)()
            elif not has_run:
                self._refund()


def is_function_of(task: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Whether a task calls a function, maybe through decorators."""
    return unwrap(task) is unwrap(function)


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
