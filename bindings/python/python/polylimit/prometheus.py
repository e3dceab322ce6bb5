"""Metrics of limiters for ``prometheus_client``, which hands them out with the program's other metrics.

>>> from polylimit import Limiter
>>> from polylimit.prometheus import register
>>> from prometheus_client import CollectorRegistry, generate_latest
>>> limiter = Limiter(policies={"api": "100/minute"})
>>> registry = CollectorRegistry()
>>> register(limiter, registry)
>>> b'polylimit_quota_limit_units{policy="api",quota="100/minute"} 100.0' in generate_latest(registry)
True

docs/metrics.md describes each family.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from polylimit._collect import CollectedFamily, LimiterSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polylimit import AsyncLimiter, Limiter, MetricHistogram

__all__ = ["register", "unregister"]


class _LimiterCollector(Collector):
    """The one collector of a registry, for all of its limiters: no registry takes the same families twice."""

    def __init__(self) -> None:
        self.limiters = LimiterSet()
        self.has_process = False

    def collect(self) -> Iterator[Metric]:
        process = {"process": str(os.getpid())} if self.has_process else {}
        return (_metric(family, process) for family in self.limiters.families())

    describe = collect


_collectors: WeakKeyDictionary[CollectorRegistry, _LimiterCollector] = WeakKeyDictionary()
_lock = threading.Lock()


def register(
    limiter: Limiter | AsyncLimiter,
    registry: CollectorRegistry = REGISTRY,
    *,
    name: str | None = None,
    process: bool = False,
) -> None:
    """Add the metrics of a limiter to a registry, which keeps the limiter until it is unregistered.

    Parameters
    ----------
    limiter
        The limiter.
    registry
        The registry; the default is the one of ``prometheus_client``.
    name
        The value of the label ``limiter``, which distinguishes several limiters. One limiter may have none.
    process
        Whether the samples of all limiters of this registry have the label ``process``, the id of the process that is
        asked: for workers that share one port. It may be set before they are forked.

    Raises
    ------
    ValueError
        When the limiter is registered already, or another one by the same name, or without one.

    """
    with _lock:
        collector = _collectors.get(registry) or _LimiterCollector()
        collector.limiters.add(limiter, name)
        collector.has_process |= process
        if registry not in _collectors:
            registry.register(collector)
            _collectors[registry] = collector


def unregister(limiter: Limiter | AsyncLimiter, registry: CollectorRegistry = REGISTRY) -> None:
    """Remove the metrics of a limiter from a registry; one that is not there changes nothing."""
    with _lock:
        collector = _collectors.get(registry)
        if collector is None:
            return
        collector.limiters.remove(limiter)
        if not collector.limiters:
            registry.unregister(collector)
            del _collectors[registry]


def _metric(family: CollectedFamily, process: dict[str, str]) -> Metric:
    metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
    for labels, value in family.samples:
        if isinstance(value, (int, float)):
            metric.add_sample(family.name, {**labels, **process}, value)
        else:
            _add_histogram(metric, {**labels, **process}, value)
    return metric


def _add_histogram(metric: Metric, labels: dict[str, str], histogram: MetricHistogram) -> None:
    buckets = [(str(bound), count) for bound, count in histogram.buckets]
    for bound, count in [*buckets, ("+Inf", histogram.count)]:
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{metric.name}_sum", labels, histogram.sum)
    metric.add_sample(f"{metric.name}_count", labels, histogram.count)
