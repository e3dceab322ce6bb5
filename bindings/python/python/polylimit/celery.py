"""Limits for tasks of Celery: a denied task goes back to its queue, and no worker waits for it.

>>> from celery import Celery
>>> from polylimit import Limiter
>>> from polylimit.celery import limited
>>> app = Celery("tasks", broker="redis://localhost:6379")
>>> limiter = Limiter(policies={"exports": "2 concurrent; 100/day"})
>>> @app.task
... @limited(limiter, "exports", key=lambda tenant: tenant)
... def export(tenant: str) -> None: ...

Celery 5.3 and newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from polylimit._tasks import TaskLimit, TaskOptions, is_function_of
from polylimit._versions import require
from polylimit.functions import DeniedError

require("celery", "5.3", "celery")

from celery import current_task  # noqa: E402
from celery.exceptions import Reject, Retry  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from polylimit import Limiter, Policy, Quota

__all__ = ["DeniedError", "Postponed", "TaskOptions", "limited"]

F = TypeVar("F", bound="Callable[..., Any]")


class Postponed(Retry):  # type: ignore[misc]
    """Raised in place of a task that goes back to its queue: the worker takes it for a retry."""


class limited:  # noqa: N801 - used as a decorator
    """Limits the tasks of a function: ``@app.task`` above ``@limited(limiter, "exports", key=lambda tenant: tenant)``.

    A task that is denied is sent again with a countdown of its ``retry_after``, in whole seconds. That is no retry of
    its own: ``max_retries``, its id and its result stay as they are. Under a policy with a quota such as
    ``"2 concurrent"`` a task holds a slot while it runs; that of a worker which is killed is free after the ``ttl``. A
    task that raises has spent its units. With several limits above each other, a task that one of them denies has
    spent none.

    Parameters
    ----------
    limiter
        The limiter.
    policy
        A policy's name, or quotas; it may be left out where the limiter has one policy.
    options
        See :class:`TaskOptions`. ``key`` may be a function of the task's arguments, of which ``self`` is the first with
        ``bind=True``.

    Raises
    ------
    InvalidArgumentError
        When the policy is not known, or another option is not valid.
    DeniedError
        By a task that can never be admitted, and by a call that no worker makes, such as with ``task_always_eager``.
    PolylimitError
        By a task for which the limiter could not decide.

    """

    def __init__(
        self, limiter: Limiter, policy: str | Quota | Policy | None = None, **options: Unpack[TaskOptions]
    ) -> None:
        self._limit = TaskLimit(limiter, policy, **options)

    def __call__(self, function: F) -> F:
        """Limit a function."""
        return self._limit.around(function, _current, _put_back, Postponed)


def _current(function: Callable[..., Any]) -> tuple[str, str] | None:
    task = current_task
    if not task or task.request.called_directly or task.request.is_eager or not is_function_of(task.run, function):
        return None
    return task.request.id, task.name


def _put_back(seconds: int) -> NoReturn:
    request = current_task.request
    # `Task.retry` would count it.
    again = current_task.signature_from_request(request, countdown=seconds, retries=request.retries)
    try:
        again.apply_async()
    except Exception as error:
        # As `Task.retry` does: the broker has the message still, unless it was acknowledged early.
        raise Reject(error, requeue=False) from error
    raise Postponed(when=seconds, sig=again)
