"""How an integration takes a request through a guard: the steps are generators that yield what has to be awaited.

:func:`drive` runs them on this thread, :func:`drive_async` in an event loop. The rules are those of the core's guard.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar

from polylimit._charges import policy_list
from polylimit._core import RequestAttributes, StoreCall
from polylimit._guard import Denial, Outage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polylimit import keys
    from polylimit._core import GuardCheck, Problem, RequestLimits, Settling
    from polylimit._guard import Guard

T = TypeVar("T")
#: Steps that return something in the end.
Steps = Generator[Any, Any, T]
#: What the steps of a decision return: the denial and the response to it, if the request is denied.
Denied = tuple[Denial, Any] | None


def decide(
    guard: Guard,
    info: keys.RequestInfo,
    limits: RequestLimits,
    later: Sequence[Guard] = (),
    check: GuardCheck | None = None,
) -> Steps[Denied]:
    """Decide about a request; return the denial and the response to it, if it is denied.

    ``later`` are guards that the request meets afterwards, unless something between denies it. ``check`` is a check
    that has begun already.
    """
    if check is not None:
        return (yield from _conclude(guard, info, limits, check, later))
    core = guard.core
    method = info.method()
    if (guard.has_methods or method == "OPTIONS") and not core.applies_to(method, _requested_method(guard, info)):
        return None
    if guard.skip is not None and (yield guard.skip(info.request)):
        return None
    if guard.by_configuration:
        attributes = yield from _attributes(guard, info)
        check = core.start_by_configuration(limits, attributes)
        return None if check is None else (yield from _conclude(guard, info, limits, check, later))
    policies = None if guard.policy is None else policy_list((yield guard.policy(info.request)))
    if guard.key is None:
        key: Any = guard.key_of_parts(info, (yield info.user()) if guard.has_user else None)
    else:
        key = yield guard.key(info.request)
        if key is None or key in ("", b""):
            key = guard.key_without(info)
    cost = None if guard.cost is None else (yield guard.cost(info.request))
    costs = None if guard.costs is None else (yield from _costs(guard.costs, info))
    route = info.route() if core.is_per_route else None
    check = core.start(limits, key, cost=cost, costs=costs, route=route, policies=policies)
    return None if check is None else (yield from _conclude(guard, info, limits, check, later))


def _costs(functions: Iterable[Callable[[Any], Any] | None], info: keys.RequestInfo) -> Steps[list[Any]]:
    """Return the costs under the policies that have a function of their own; ``None`` for the others."""
    costs: list[Any] = []
    for function in functions:
        cost = None if function is None else (yield function(info.request))
        costs.append(cost)
    return costs


def _requested_method(guard: Guard, info: keys.RequestInfo) -> str | None:
    """Return the method that a preflight asks for, where it does not run the handler that the limit is attached to."""
    if guard.is_attached or not info.header("origin"):
        return None
    requested = info.header("access-control-request-method")
    return requested[0].decode("latin-1") if requested else None


def _attributes(guard: Guard, info: keys.RequestInfo) -> Steps[RequestAttributes]:
    """Return what the rules of a configuration are about."""
    given = dict((yield guard.attributes(info.request)) or {}) if guard.attributes is not None else {}
    if "user" not in given:
        given["user"] = yield info.user()
    if "route" not in given:
        given["route"] = info.pattern()
    # The peer of a Unix socket is on this host.
    peer = info.peer() or "127.0.0.1"
    return RequestAttributes(
        method=info.method(),
        path=info.target(),
        peer=peer,
        headers=info.lines(),
        attributes=given,
        router_paths=info.router_paths(),
    )


def _conclude(
    guard: Guard, info: keys.RequestInfo, limits: RequestLimits, check: GuardCheck, later: Sequence[Guard]
) -> Steps[Denied]:
    if not check.is_concluded:
        yield from _ask(guard, info, check, later)
    problem, settling = check.conclude(limits)
    if problem is not None:
        return (yield from refuse(guard, info, limits, problem, settling))
    yield from _make_all(settling or ())
    return None


def refuse(
    guard: Guard, info: keys.RequestInfo, limits: RequestLimits, problem: Problem, settling: Settling | None
) -> Steps[Denied]:
    """Give back what the guards have spent on a request that is denied; return the denial and the response to it."""
    yield from _make_all(settling or ())
    denial = Denial(limits.outcomes, problem)
    cors: list[tuple[str, str]] = []
    if guard.has_cors_origins:
        origin = info.header("origin")
        cors = guard.core.cors_fields(origin[0].decode("latin-1") if origin else None)
    if guard.on_denied is None:
        accept = b", ".join(info.header("accept")).decode("latin-1")
        status, fields, body = problem.response(accept or None)
        return denial, info.response(status, [*fields, *cors], body)
    response = yield guard.on_denied(info.request, denial)
    if response is None:
        # A framework may take it for a request that proceeds.
        raise TypeError("on_denied makes the response to a denial: None is no response")
    return denial, info.with_cors(response, cors) if cors else response


def _ask(guard: Guard, info: keys.RequestInfo, check: GuardCheck, later: Sequence[Guard]) -> Steps[None]:
    """Let the store decide, and ``on_outage`` if it could not."""
    for one in later if check.is_asking else ():
        if one.is_known_early and one.core.applies_to(info.method()):
            route = info.route() if one.core.is_per_route else None
            one.core.ask_ahead(check, one.key_of_parts(info, None), route)
    call = check.ask(is_first=True)
    while call is not None:
        yield call
        call = check.ask(is_first=False)
    outage = None if guard.on_outage is None else check.outage()
    if guard.on_outage is not None and outage is not None:
        admit = yield guard.on_outage(info.request, Outage(*outage))
        if admit is not None:
            if not isinstance(admit, bool):
                raise TypeError(f"on_outage returned a {type(admit).__name__}: allowed are True, False and None")
            check.overrule(admit)


def finish(limits: RequestLimits, response: Any) -> Steps[None]:
    """End the guards of a request with its response: refund the units of those whose ``count`` is false for it.

    Where ``limits.holds`` then, :func:`end` has to be called when the response is done.
    """
    settling, raised = limits.finish(response)
    yield from _make_all(settling, raised)


def begin(limits: RequestLimits, response: Any, head: Callable[[], Iterable[tuple[Any, Any]]]) -> Steps[bool]:
    """As :func:`finish`, for a response that begins; return whether ``limits.read_body`` gets the parts of its body."""
    yield from finish(limits, response)
    return limits.reads_response and limits.read_head(list(head()))


class BodyReader:
    """The parts of a body, which the request's limits read as they pass."""

    def __init__(self, limits: RequestLimits, parts: Iterable[Any]) -> None:
        self._limits = limits
        self._parts = parts
        self._iterator = iter(parts)

    def __iter__(self) -> BodyReader:
        return self

    def __next__(self) -> Any:
        part = next(self._iterator)
        self._limits.read_body(part)
        return part

    def close(self) -> None:
        """Close the parts, as servers do when the client has gone."""
        close = getattr(self._parts, "close", None)
        if close is not None:
            close()


def end(limits: RequestLimits) -> Steps[None]:
    """End the reservations of a request whose response is done, or whose client has gone."""
    settling, raised = limits.end()
    yield from _make_all(settling, raised)


def fail(limits: RequestLimits, response: Any) -> Steps[None]:
    """End the guards of a request that has no response; the given one stands for it in ``count``."""
    settling, raised = limits.finish(response, has_failed=True)
    try:
        yield from _make_all(settling, raised)
    finally:
        yield from end(limits)


def abandon(limits: RequestLimits, response: Any, *, has_started: bool) -> Steps[None]:
    """End the guards of a request whose response is not complete, as its client has gone or its handler has failed.

    The given response stands in ``count`` for one that has not started.
    """
    if not has_started:
        yield from fail(limits, response)
    elif limits.holds:
        yield from end(limits)


def _make_all(calls: Iterable[StoreCall], raised: BaseException | None = None) -> Steps[None]:
    """Make every call, and then raise what was raised first.

    Under anyio a cancelled task is cancelled again at every await: each call is sent before its await yields.
    """
    for call in calls:
        try:
            yield call
        except BaseException as error:  # noqa: BLE001, PERF203
            raised = raised or error
    if raised is not None:
        raise raised


def drive(steps: Steps[T], wait: Callable[[Any], Any]) -> T:
    """Run steps on this thread; ``wait`` waits for the result of an asynchronous function."""
    try:
        value = steps.send(None)
        while True:
            try:
                if isinstance(value, StoreCall):
                    value.wait()
                    value = None
                elif value is not None and isawaitable(value):
                    value = wait(value)
            except BaseException as error:  # noqa: BLE001, PERF203
                value = steps.throw(error)
            else:
                value = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def drive_async(steps: Steps[T]) -> T:
    """Run steps in an event loop."""
    try:
        value = steps.send(None)
        while True:
            try:
                # The first question takes a fraction of the time of the other.
                if type(value) is StoreCall or (value is not None and isawaitable(value)):
                    value = await value
            except BaseException as error:  # noqa: BLE001, PERF203
                value = steps.throw(error)
            else:
                value = steps.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


class AsyncResponse:
    """Follows the response to a request in an event loop: its head, the parts of its body, and its end."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        #: Whether the head has been there.
        self.has_started = False
        self._reads = False

    async def start(self, response: Any, *lines: tuple[str, str]) -> None:
        """Add the fields to a response whose head is about to be sent, with these lines in addition to its headers."""
        self.has_started = True
        headers = response.headers
        self._reads = await drive_async(begin(self.limits, response, lambda: [*lines, *headers.items()]))
        headers.extend(self.limits.fields())

    def read(self, part: Any) -> None:
        """Read a part of the body."""
        if self._reads and part:
            self.limits.read_body(bytes(part))

    async def end(self) -> None:
        """End what the request holds: all of the response was sent, or no more can be."""
        await drive_async(end(self.limits))

    async def abandon(self, failed: Any) -> None:
        """As :func:`abandon`."""
        await drive_async(abandon(self.limits, failed, has_started=self.has_started))


async def resolve(value: Any) -> Any:
    """Return the result of an awaitable; anything else as it is."""
    return await value if isawaitable(value) else value
