"""Limits for actors of Dramatiq: a denied message goes back to its queue, and no worker waits for it.

>>> import dramatiq
>>> from dramatiq.brokers.stub import StubBroker
>>> from polylimit import Limiter
>>> from polylimit.dramatiq import Limit, RateLimitMiddleware
>>> broker = StubBroker()
>>> broker.add_middleware(RateLimitMiddleware())
>>> dramatiq.set_broker(broker)
>>> limiter = Limiter(policies={"exports": "2 concurrent; 100/day"})
>>> @dramatiq.actor(limits=[Limit(limiter, "exports", key=lambda tenant: tenant)])
... def export(tenant: str) -> None: ...

Dramatiq 1.15 and newer.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn

from polylimit._tasks import TaskLimit, TaskOptions
from polylimit._versions import require
from polylimit.functions import DeniedError

require("dramatiq", "1.15", "dramatiq")

import dramatiq  # noqa: E402
from dramatiq.middleware import MiddlewareError, SkipMessage  # noqa: E402

if TYPE_CHECKING:
    from dramatiq import Actor, Broker
    from dramatiq.broker import MessageProxy

    from polylimit._tasks import HeldTask

__all__ = ["Limit", "RateLimitMiddleware", "TaskOptions", "UndecidedError"]


class Limit(TaskLimit):
    """A limit of an actor: ``@dramatiq.actor(limits=[Limit(limiter, "exports", key=lambda tenant: tenant)])``.

    A message that is denied is enqueued again with a delay of its ``retry_after``, in whole seconds, and is no retry:
    ``max_retries`` stays as it is. Under a policy with a quota such as ``"2 concurrent"`` it holds a slot while it is
    processed; of a worker that is killed, the slot is free after the ``ttl``. An actor that raises has spent its units.
    Of several limits, all admit a message, or it spends nothing under any.

    The limiter is a :class:`polylimit.Limiter`, also for asynchronous actors. The policy may be left out where it has
    one. The options are those of :class:`TaskOptions`.
    """


class UndecidedError(MiddlewareError):
    """Raised in place of an actor for which a limiter could not decide: the message is retried as after any error."""


class RateLimitMiddleware(dramatiq.Middleware):
    """Limits the actors that have the option ``limits``; it is added to the broker before actors are declared.

    A message that can never be admitted fails at once, without a retry.
    """

    def __init__(self) -> None:
        self._held = threading.local()

    @property
    def actor_options(self) -> set[str]:
        """The options that it adds to actors."""
        return {"limits"}

    def before_declare_actor(self, broker: Broker, actor: Actor[Any, Any]) -> None:  # noqa: ARG002
        """Refuse an actor whose option is not valid."""
        limits = actor.options.get("limits", [])
        if not isinstance(limits, (list, tuple)) or not all(isinstance(limit, TaskLimit) for limit in limits):
            # Dramatiq would log any other error, and declare the actor.
            raise MiddlewareError(f"limits is {limits!r}: allowed is a list of Limit of polylimit.dramatiq")

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Decide about a message."""
        held: list[HeldTask] = []
        self._held.tasks = held
        if message.failed:
            return
        for limit in broker.get_actor(message.actor_name).options.get("limits", []):
            denied = _start(limit, message, held)
            if denied is not None:
                self._end(has_run=False)
                _put_back(broker, message, limit, denied)

    def after_process_message(
        self,
        broker: Broker,  # noqa: ARG002
        message: MessageProxy,  # noqa: ARG002
        *,
        result: Any = None,  # noqa: ARG002
        exception: BaseException | None = None,
    ) -> None:
        """End what a message has taken; it has not run where a limit could not decide."""
        self._end(has_run=not isinstance(exception, UndecidedError))

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:  # noqa: ARG002
        """Give back what a message has taken that another middleware skips."""
        self._end(has_run=False)

    def _end(self, *, has_run: bool) -> None:
        held: list[HeldTask] = getattr(self._held, "tasks", [])
        while held:
            held.pop().end(has_run=has_run)


def _start(limit: TaskLimit, message: MessageProxy, held: list[HeldTask]) -> DeniedError | None:
    try:
        held.append(limit.start(message.message_id, message.actor_name, message.args, message.kwargs))
    except DeniedError as denied:
        return denied
    except Exception as error:
        # Dramatiq would log any other error, and run the actor.
        raise UndecidedError(f"{type(error).__name__}: {error}") from error
    return None


def _put_back(broker: Broker, message: MessageProxy, limit: TaskLimit, denied: DeniedError) -> NoReturn:
    try:
        seconds = limit.delay(denied)
    except DeniedError as never:
        message.fail()
        raise SkipMessage(str(never)) from never
    broker.enqueue(message.copy(), delay=seconds * 1000)
    # The middleware for results would store the result of a message that is skipped.
    message.options["store_results"] = False
    raise SkipMessage(str(denied))
