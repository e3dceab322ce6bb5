"""Metrics as values, as text, for prometheus_client and for OpenTelemetry."""

import subprocess
import sys

import polylimit.opentelemetry
import polylimit.prometheus
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from polylimit import AsyncLimiter, InvalidArgumentError, Limiter, MetricFamily, MetricHistogram
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

QUOTAS = "2/minute; 1000/hour"


@pytest.fixture
def limiter():
    limiter = Limiter(policies={"api": QUOTAS, "login": "5/day"})
    for _ in range(3):
        limiter.check("user:42", "api")
    limiter.check("user:42", "login", cost=4)
    yield limiter
    limiter.close()


def values(limiter):
    """The numbers of a limiter, by name and labels."""
    return {
        (family.name, *sorted(sample.labels.items())): sample.value
        for family in limiter.metrics()
        for sample in family.samples
    }


def samples(families):
    """What a parser has read, by name and labels; the families by their names."""
    families = list(families)
    numbers = {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }
    return numbers, {(family.name, family.type, family.documentation) for family in families if family.samples}


def test_values_are_typed(limiter):
    families = {family.name: family for family in limiter.metrics()}
    decisions = families["polylimit_decisions_total"]
    assert isinstance(decisions, MetricFamily)
    assert (decisions.kind, decisions.help[-1]) == ("counter", ".")
    counts = {tuple(sample.labels.values()): sample.value for sample in decisions.samples}
    assert counts[("api", "allowed", "store")] == 2
    assert counts[("api", "denied", "store")] == 1
    assert {type(count) for count in counts.values()} == {int}
    (period, *_) = families["polylimit_quota_period_seconds"].samples
    assert (period.labels, period.value) == ({"policy": "api", "quota": "2/minute"}, 60.0)
    assert families["polylimit_store_duration_seconds"].samples == []
    assert decisions == next(family for family in limiter.metrics() if family.name == decisions.name)
    assert decisions.samples[0] != decisions.samples[1]
    with pytest.raises(AttributeError):
        decisions.name = "another"
    assert "polylimit_decisions_total" in repr(decisions)
    assert "user:42" not in repr(decisions.samples)


def test_asynchronous_limiter_has_the_same_metrics(run):
    async def main():
        limiter = AsyncLimiter(policies={"api": QUOTAS})
        await limiter.check("user:42")
        assert values(limiter) == values(limiter.blocking)
        assert limiter.metrics_text("openmetrics") == limiter.blocking.metrics_text("openmetrics")
        assert 'polylimit_decisions_total{policy="api",result="allowed",source="store"} 1' in limiter.metrics_text()
        limiter.close()

    run(main())


def test_histogram_of_redis(redis, key):
    with Limiter(redis, {"api": "5/day"}) as limiter:
        limiter.check(key)
        (sample,) = [
            sample
            for family in limiter.metrics()
            if family.name == "polylimit_store_duration_seconds"
            for sample in family.samples
        ]
        histogram = sample.value
        assert isinstance(histogram, MetricHistogram)
        assert histogram.count >= 1
        assert histogram.sum > 0
        bounds = [bound for bound, _ in histogram.buckets]
        counts = [count for _, count in histogram.buckets]
        assert bounds == sorted(bounds)
        assert counts == sorted(counts)
        assert counts[-1] <= histogram.count
        assert f"count={histogram.count}" in repr(histogram)


def test_unknown_format_is_an_error(limiter):
    with pytest.raises(InvalidArgumentError, match="openmetrics"):
        limiter.metrics_text("json")


def test_closed_limiter_has_metrics(limiter):
    before = values(limiter)
    limiter.close()
    assert values(limiter)["polylimit_build_info", ("store", "memory"), ("version", polylimit.__version__)] == 1
    assert values(limiter).keys() >= {labels for labels in before if labels[0] == "polylimit_decisions_total"}


@pytest.mark.parametrize("url", ["memory", "redis"])
def test_exposition_is_that_of_the_core(request, url, key):
    limiter = Limiter(
        "memory:" if url == "memory" else request.getfixturevalue("redis"), {"api": QUOTAS, "login": "5/day"}
    )
    for policy in ("api", "api", "api", "login"):
        limiter.check(key, policy)
    registry = CollectorRegistry()
    polylimit.prometheus.register(limiter, registry)
    ours, theirs = limiter.metrics_text("prometheus"), generate_latest(registry).decode()
    assert samples(parse_prometheus(theirs)) == samples(parse_prometheus(ours))
    ours, theirs = limiter.metrics_text("openmetrics"), openmetrics.generate_latest(registry).decode()
    assert samples(parse_openmetrics(theirs)) == samples(parse_openmetrics(ours))
    limiter.close()


def test_several_limiters_have_a_label_in_prometheus(limiter):
    other = AsyncLimiter(policies={"api": "7/day"})
    registry = CollectorRegistry(auto_describe=True)
    polylimit.prometheus.register(limiter, registry, name="edge")
    polylimit.prometheus.register(other, registry, name="inner")
    labels = {"policy": "api", "quota": "7/day", "limiter": "inner"}
    assert registry.get_sample_value("polylimit_quota_limit_units", labels) == 7
    labels = {"policy": "api", "quota": "2/minute", "limiter": "edge"}
    assert registry.get_sample_value("polylimit_quota_limit_units", labels) == 2
    # Each family once.
    assert generate_latest(registry).count(b"# TYPE polylimit_build_info ") == 1
    with pytest.raises(ValueError, match="'inner' is registered already"):
        polylimit.prometheus.register(Limiter(), registry, name="inner")
    with pytest.raises(ValueError, match="unregister it"):
        polylimit.prometheus.register(limiter, registry, name="another")
    polylimit.prometheus.unregister(other, registry)
    assert b"inner" not in generate_latest(registry)
    polylimit.prometheus.unregister(limiter, registry)
    polylimit.prometheus.unregister(limiter, registry)
    assert generate_latest(registry) == b""
    polylimit.prometheus.register(limiter, registry)
    assert registry.get_sample_value("polylimit_build_info", {"version": polylimit.__version__, "store": "memory"}) == 1


WORKER = """
import os
import polylimit.prometheus
from polylimit import Limiter
from prometheus_client import REGISTRY, generate_latest

limiter = Limiter(policies={"api": "2/minute"})
limiter.check("user:42")
polylimit.prometheus.register(limiter, process=True)
worker = os.fork()
if worker == 0:
    for _ in range(3):
        limiter.check("user:42")
    print(os.getpid(), generate_latest().decode(), sep="\\n", flush=True)
    os._exit(0)
os.waitpid(worker, 0)
"""


def test_forked_workers_have_a_label():
    done = subprocess.run([sys.executable, "-W", "error", "-c", WORKER], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    process, exposition = done.stdout.split("\n", 1)
    numbers, _ = samples(family for family in parse_prometheus(exposition) if family.name.startswith("polylimit_"))
    assert {dict(labels)["process"] for _, *labels in numbers} == {process}
    denied = (("policy", "api"), ("process", process), ("result", "denied"), ("source", "store"))
    allowed = (("policy", "api"), ("process", process), ("result", "allowed"), ("source", "store"))
    # The check before the fork counts for the other process.
    assert numbers[("polylimit_decisions_total", *allowed)] == 2
    assert numbers[("polylimit_decisions_total", *denied)] == 1


def observed(reader):
    """What a collection has observed, by instrument and attributes; the instruments by name."""
    metrics = [
        metric
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    numbers = {
        (metric.name, *sorted(point.attributes.items())): point.value
        for metric in metrics
        for point in metric.data.data_points
    }
    return numbers, {metric.name: metric for metric in metrics}


def test_opentelemetry_observes_every_sample(limiter):
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    polylimit.opentelemetry.register(limiter, provider.get_meter("program"))
    limiter.check("user:43", "api")
    numbers, instruments = observed(reader)
    key = ("polylimit.decisions", ("policy", "api"), ("result", "denied"), ("source", "store"))
    assert numbers[key] == 1
    decisions = instruments["polylimit.decisions"]
    assert (decisions.data.is_monotonic, decisions.unit) == (True, "")
    period = instruments["polylimit.quota_period"]
    assert (period.unit, hasattr(period.data, "is_monotonic")) == ("s", False)
    assert decisions.description == limiter.metrics()[0].help
    expected = {}
    for (family, *labels), number in values(limiter).items():
        name = "polylimit." + family.removeprefix("polylimit_").removesuffix("_total").removesuffix("_seconds")
        expected[(name, *labels)] = number
    assert numbers == expected
    provider.shutdown()


def test_opentelemetry_observes_several_limiters_and_histograms(limiter, redis, key):
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    meter = provider.get_meter("program")
    other = Limiter(redis, {"api": "5/day"})
    other.check(key)
    polylimit.opentelemetry.register(limiter, meter, name="edge")
    polylimit.opentelemetry.register(other, meter, name="inner")
    with pytest.raises(ValueError, match="'edge' is registered already"):
        polylimit.opentelemetry.register(Limiter(), meter, name="edge")
    numbers, instruments = observed(reader)
    allowed = (("policy", "api"), ("result", "allowed"), ("source", "store"))
    assert numbers[("polylimit.decisions", ("limiter", "edge"), *allowed)] == 2
    assert numbers[("polylimit.decisions", ("limiter", "inner"), *allowed)] == 1
    count = numbers["polylimit.store_duration.count", ("limiter", "inner")]
    assert count >= 1
    assert numbers["polylimit.store_duration.bucket", ("le", "+Inf"), ("limiter", "inner")] == count
    assert numbers["polylimit.store_duration.sum", ("limiter", "inner")] > 0
    assert instruments["polylimit.store_duration.sum"].unit == "s"
    polylimit.opentelemetry.unregister(other, meter)
    polylimit.opentelemetry.unregister(limiter, meter)
    polylimit.opentelemetry.register(limiter, meter)
    numbers, _ = observed(reader)
    assert numbers[("polylimit.decisions", *allowed)] == 2
    assert not any("inner" in str(labels) for labels in numbers)
    provider.shutdown()
    other.close()
