"""The metrics of several limiters as those of one process, for the adapters to monitoring systems."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from polylimit import AsyncLimiter, Limiter, MetricHistogram

__all__ = ["CollectedFamily", "LimiterSet"]


class CollectedFamily(NamedTuple):
    """A family with the samples of all limiters."""

    name: str
    help: str
    kind: str
    samples: list[tuple[dict[str, str], int | float | MetricHistogram]]


class LimiterSet:
    """Limiters, each with the labels that its samples have besides their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A copy replaces it at each change, so a collection needs no lock, and a fork finds none held.
        self._limiters: tuple[tuple[Limiter | AsyncLimiter, str | None], ...] = ()

    def add(self, limiter: Limiter | AsyncLimiter, name: str | None) -> None:
        """Add a limiter under a name; at most one has none."""
        with self._lock:
            for known, other in self._limiters:
                if known is limiter:
                    raise ValueError("the limiter is registered already: unregister it to change its name")
                if name == other:
                    named = "without a name" if name is None else f"of the name {name!r}"
                    raise ValueError(f"a limiter {named} is registered already: give each limiter a name of its own")
            self._limiters = (*self._limiters, (limiter, name))

    def remove(self, limiter: Limiter | AsyncLimiter) -> None:
        """Remove a limiter; one that is not there changes nothing."""
        with self._lock:
            self._limiters = tuple(entry for entry in self._limiters if entry[0] is not limiter)

    def __bool__(self) -> bool:
        return bool(self._limiters)

    def families(self) -> list[CollectedFamily]:
        """Return the families of all limiters, each once; a limiter's name is the label ``limiter`` of its samples."""
        families: dict[str, CollectedFamily] = {}
        for limiter, name in self._limiters:
            named = {} if name is None else {"limiter": name}
            for family in limiter.metrics():
                collected = families.setdefault(family.name, CollectedFamily(family.name, family.help, family.kind, []))
                collected.samples.extend(({**sample.labels, **named}, sample.value) for sample in family.samples)
        return list(families.values())
