"""Limits for jobs of RQ: a denied job goes back to its queue, and no worker waits for it.

>>> from polylimit import Limiter
>>> from polylimit.rq import limited
>>> limiter = Limiter(policies={"exports": "2 concurrent; 100/day"})
>>> @limited(limiter, "exports", key=lambda tenant: tenant)
... def export(tenant: str) -> None: ...

Workers need a scheduler: ``rq worker --with-scheduler``. RQ 2.1 and newer.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit._tasks import TaskLimit, TaskOptions, is_function_of
from polylimit._versions import is_older, require
from polylimit.functions import DeniedError

require("rq", "2.1", "rq")

import rq  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from polylimit import Limiter, Policy, Quota

__all__ = ["DeniedError", "Postponed", "TaskOptions", "limited"]

F = TypeVar("F", bound="Callable[..., Any]")
#: Whether RQ counts a result that makes it wait.
_COUNTS_RETRIES = not is_older(rq.__version__, "2.8")


class Postponed(rq.Retry):
    """The result of a job that goes back to its queue: the worker takes it for a retry."""


class limited:  # noqa: N801 - used as a decorator
    """Limits the jobs of a function: ``@limited(limiter, "exports", key=lambda tenant: tenant)``.

    A job that is denied is scheduled again after its ``retry_after``, in whole seconds. That counts neither as one of
    the retries that it was enqueued with, nor as one of those that it returns itself. Under a policy with a quota such
    as ``"2 concurrent"`` a job holds a slot while it runs; of a worker that is killed, the slot is free after the
    ``ttl``. A job that raises has spent its units. With several limits above each other, a job that one of them denies
    has spent none.

    Parameters
    ----------
    limiter
        The limiter.
    policy
        A policy's name, or quotas; it may be left out where the limiter has one policy.
    options
        See :class:`TaskOptions`.

    Raises
    ------
    InvalidArgumentError
        When the policy is not known, or another option is not valid.
    DeniedError
        By a job that can never be admitted, and by a call that no worker makes.
    PolylimitError
        By a job for which the limiter could not decide.

    """

    def __init__(
        self, limiter: Limiter, policy: str | Quota | Policy | None = None, **options: Unpack[TaskOptions]
    ) -> None:
        self._limit = TaskLimit(limiter, policy, **options)

    def __call__(self, function: F) -> F:
        """Limit a function."""
        return self._limit.around(function, _current, _put_back, Postponed)


def _current(function: Callable[..., Any]) -> tuple[str, str] | None:
    job = rq.get_current_job()
    if job is None or job.func is None or not is_function_of(job.func, function):
        return None
    return job.id, job.func_name or ""


def _put_back(seconds: int) -> Postponed:
    job = rq.get_current_job()
    if _COUNTS_RETRIES and job is not None:
        job.number_of_retries = (job.number_of_retries or 0) - 1
    return Postponed(max=sys.maxsize, interval=seconds)
