"""How an integration takes a request through a guard: the steps are generators that yield what has to be awaited.

:func:`drive` runs them on this thread, :func:`drive_async` in an event loop. The rules are those of the core's guard.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from polylimit.guard import Denial, Outage, policy_list

if TYPE_CHECKING:
    from collections.abc import Generator

    from polylimit import keys
    from polylimit._core import GuardCheck, RequestLimits
    from polylimit.guard import Guard

T = TypeVar("T")


def decide(
    guard: Guard, request: Any, info: keys.RequestInfo, limits: RequestLimits, *, is_async: bool
) -> Generator[Any, Any, Denial | None]:
    """Decide about a request; return the denial, if it is denied."""
    core = guard.core
    if guard.has_methods and not core.applies_to(info.method()):
        return None
    if guard.skip is not None and (yield guard.skip(request)):
        return None
    policies = None if guard.policy is None else policy_list((yield guard.policy(request)))
    key = guard.key_of_parts(info) if guard.key is None else (yield guard.key(request))
    if key is None and guard.uses_address:
        key = guard.address(info)
    cost = None if guard.cost is None else (yield guard.cost(request))
    route = info.route() if core.is_per_route else None
    check = core.start(limits, key, cost=cost, route=route, policies=policies)
    return None if check is None else (yield from conclude(guard, request, limits, check, is_async=is_async))


def conclude(
    guard: Guard, request: Any, limits: RequestLimits, check: GuardCheck, *, is_async: bool
) -> Generator[Any, Any, Denial | None]:
    """Take a check to its end; return the denial, if the request is denied."""
    if not check.is_denied:
        if is_async:
            yield check.ask_async()
        else:
            check.ask()
        outage = None if guard.on_outage is None else check.outage()
        if guard.on_outage is not None and outage is not None:
            admit = yield guard.on_outage(request, Outage(*outage))
            if admit is not None:
                if not isinstance(admit, bool):
                    raise TypeError(f"on_outage returned a {type(admit).__name__}: allowed are True, False and None")
                check.overrule(admit)
    problem = check.conclude(limits)
    if problem is None:
        return None
    yield from _refund(check, is_async=is_async)
    return Denial(limits.outcomes, problem)


def finish(limits: RequestLimits, response: Any, *, is_async: bool) -> Generator[Any, Any, None]:
    """Refund the units of guards whose ``count`` is false for the response."""
    checks, raised = limits.finish(response)
    for check in checks:
        try:
            yield from _refund(check, is_async=is_async)
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


def _refund(check: GuardCheck, *, is_async: bool) -> Generator[Any, Any, None]:
    if not is_async:
        check.refund()
        return
    # Under anyio a cancelled task is cancelled again at every await: each refund is sent before its await yields.
    raised: BaseException | None = None
    for operation in check.refund_async():
        try:
            yield operation
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


def drive(steps: Generator[Any, Any, T], wait: Callable[[Any], Any]) -> T:
    """Run steps on this thread; ``wait`` gives the result of an awaitable."""
    value = None
    try:
        while True:
            value = steps.send(value)
            if value is not None and isawaitable(value):
                value = wait(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def drive_async(steps: Generator[Any, Any, T]) -> T:
    """Run steps in an event loop."""
    try:
        value = steps.send(None)
        while True:
            try:
                value = await value if value is not None and isawaitable(value) else value
            except BaseException as error:  # noqa: BLE001, PERF203
                value = steps.throw(error)
            else:
                value = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def resolve(value: Any) -> Any:
    """Return the result of an awaitable; anything else as it is."""
    return await value if isawaitable(value) else value
