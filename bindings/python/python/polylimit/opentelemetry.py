"""Metrics of limiters as observable instruments of OpenTelemetry.

>>> from polylimit import Limiter
>>> from polylimit.opentelemetry import register
>>> register(Limiter(policies={"api": "100/minute"}))

The instrument of the family ``polylimit_decisions_total`` is ``polylimit.decisions``, and the labels of its samples are
attributes; docs/metrics.md describes each family.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from polylimit._collect import CollectedFamily, LimiterSet
from polylimit._core import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polylimit import AsyncLimiter, Limiter

__all__ = ["register", "unregister"]

_limiters: WeakKeyDictionary[Meter, LimiterSet] = WeakKeyDictionary()
_lock = threading.Lock()
_default_meter = get_meter("polylimit", __version__)


def register(limiter: Limiter | AsyncLimiter, meter: Meter = _default_meter, *, name: str | None = None) -> None:
    """Observe the metrics of a limiter at each collection; the meter keeps the limiter until it is unregistered.

    Parameters
    ----------
    limiter
        The limiter.
    meter
        The meter; the default is the one of the name ``polylimit`` of the global provider, which may be set later.
    name
        The value of the attribute ``limiter``, which distinguishes several limiters. One limiter may have none.

    Raises
    ------
    ValueError
        When the limiter is registered already, or another one by the same name, or without one.

    """
    with _lock:
        known = _limiters.get(meter)
        limiters = LimiterSet() if known is None else known
        limiters.add(limiter, name)
        if known is None:
            _limiters[meter] = limiters
            for family in limiters.families():
                _create_instruments(meter, family, limiters)


def unregister(limiter: Limiter | AsyncLimiter, meter: Meter = _default_meter) -> None:
    """Observe a limiter no longer; one that is not registered changes nothing."""
    with _lock:
        limiters = _limiters.get(meter)
        if limiters is not None:
            # The instruments of a meter cannot be removed. Without limiters they have no observations.
            limiters.remove(limiter)


def _create_instruments(meter: Meter, family: CollectedFamily, limiters: LimiterSet) -> None:
    name, unit = _name_and_unit(family.name)
    if family.kind == "gauge":
        callback = _observing(limiters, family.name, _numbers)
        meter.create_observable_gauge(name, [callback], unit, family.help)
    elif family.kind == "counter":
        callback = _observing(limiters, family.name, _numbers)
        meter.create_observable_counter(name, [callback], unit, family.help)
    else:
        # OpenTelemetry has no histogram that is observed, so its parts are counters.
        for part, part_unit, observations in (
            ("bucket", "", _buckets),
            ("count", "", _counts),
            ("sum", unit, _sums),
        ):
            callback = _observing(limiters, family.name, observations)
            meter.create_observable_counter(f"{name}.{part}", [callback], part_unit, family.help)


def _name_and_unit(family: str) -> tuple[str, str]:
    """Return the name of an instrument and its unit, which names have no part for."""
    name = "polylimit." + family.removeprefix("polylimit_").removesuffix("_total")
    if name.endswith("_seconds"):
        return name.removesuffix("_seconds"), "s"
    return name, ""


def _observing(
    limiters: LimiterSet, name: str, observations: Callable[[CollectedFamily], Iterator[Observation]]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_options: CallbackOptions) -> Iterable[Observation]:
        return [seen for family in limiters.families() if family.name == name for seen in observations(family)]

    return observe


def _numbers(family: CollectedFamily) -> Iterator[Observation]:
    for labels, value in family.samples:
        if isinstance(value, (int, float)):
            yield Observation(value, labels)


def _buckets(family: CollectedFamily) -> Iterator[Observation]:
    for labels, value in family.samples:
        if not isinstance(value, (int, float)):
            for bound, count in value.buckets:
                yield Observation(count, {**labels, "le": str(bound)})
            yield Observation(value.count, {**labels, "le": "+Inf"})


def _counts(family: CollectedFamily) -> Iterator[Observation]:
    for labels, value in family.samples:
        if not isinstance(value, (int, float)):
            yield Observation(value.count, labels)


def _sums(family: CollectedFamily) -> Iterator[Observation]:
    for labels, value in family.samples:
        if not isinstance(value, (int, float)):
            yield Observation(value.sum, labels)
