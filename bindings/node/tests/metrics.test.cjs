// Metrics as values, as text, for prom-client and for OpenTelemetry.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { AggregationTemporality, InMemoryMetricExporter } = require("@opentelemetry/sdk-metrics");
const { MeterProvider, PeriodicExportingMetricReader } = require("@opentelemetry/sdk-metrics");
const { Limiter } = require("polylimit");
const opentelemetry = require("polylimit/opentelemetry");
const prometheus = require("polylimit/prometheus");
const { AggregatorRegistry, Registry } = require("prom-client");

const { withRedis } = require("./support/redis.cjs");

const QUOTAS = "2/minute; 1000/hour";

/** A limiter that has admitted two checks and denied one. */
function used(t, url = "memory:") {
  const limiter = new Limiter(url, { policies: { api: QUOTAS, login: "5/day" } });
  t.after(() => limiter.close());
  for (let checks = 0; checks < 3; checks++) limiter.checkSync("user:42", { policy: "api" });
  return limiter;
}

const family = (limiter, name) => limiter.metrics().find((found) => found.name === `polylimit_${name}`);

/** The lines of an exposition, without the order of its labels. */
const lines = (exposition) =>
  exposition
    .split("\n")
    .filter((line) => line !== "")
    .map((line) =>
      line.replace(
        /\{(.*)\}/,
        (_, labels) =>
          `{${labels
            .split(/,(?=\w+=")/)
            .sort()
            .join(",")}}`,
      ),
    )
    .sort();

/** The samples and the types of the families that have samples. */
function exposed(exposition) {
  const numbered = lines(exposition).filter((line) => !line.startsWith("# "));
  // One writes 1 and the other 1.0.
  const samples = numbered.map((line) => line.replace(/\S+$/, (number) => String(Number(number))));
  const names = new Set(samples.map((line) => line.replace(/[{ ].*/, "").replace(/_(bucket|sum|count)$/, "")));
  const of = (line) => line.split(" ")[2];
  const about = lines(exposition).filter((line) => /^# (HELP|TYPE)/.test(line));
  return [samples, about.filter((line) => names.has(of(line)) || names.has(`${of(line)}_total`))];
}

test("metrics are typed values, also of a closed limiter", (t) => {
  const limiter = used(t);
  const decisions = family(limiter, "decisions_total");
  assert.equal(decisions.kind, "counter");
  const count = (result) => decisions.samples.find(({ labels }) => labels.policy === "api" && labels.result === result);
  assert.equal(count("allowed").value, 2);
  assert.deepEqual(count("denied"), { labels: { policy: "api", result: "denied", source: "store" }, value: 1 });
  assert.equal(family(limiter, "quota_period_seconds").samples[0].value, 60);
  assert.doesNotMatch(JSON.stringify(limiter.metrics()), /user:42/);
  limiter.close();
  assert.deepEqual(family(limiter, "decisions_total"), decisions);
});

test("metricsText has both formats, and refuses others", (t) => {
  const limiter = used(t);
  const counted = 'polylimit_decisions_total{policy="api",result="allowed",source="store"} 2';
  assert.ok(limiter.metricsText().includes(counted));
  assert.match(limiter.metricsText("openmetrics"), /# EOF\n$/);
  assert.throws(() => limiter.metricsText("json"), { code: "invalid_argument", message: /openmetrics/ });
  assert.throws(() => limiter.metricsText(5), { code: "invalid_argument", message: /format is 5/ });
});

test("prom-client exposes what the core writes", async (t) => {
  const limiter = used(t);
  for (const [format, type] of [
    ["prometheus", Registry.PROMETHEUS_CONTENT_TYPE],
    ["openmetrics", Registry.OPENMETRICS_CONTENT_TYPE],
  ]) {
    const registry = new Registry(type);
    prometheus.addLimiter(limiter, { registry });
    assert.deepEqual(exposed(await registry.metrics()), exposed(limiter.metricsText(format)));
    // A second collection has the same names.
    assert.deepEqual(exposed(await registry.metrics()), exposed(limiter.metricsText(format)));
  }
});

test("histograms of Redis are exposed and observed", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, { policies: { api: "5/day" }, deadline: "10s" });
    await limiter.check("k");
    const [{ value: histogram }] = family(limiter, "store_duration_seconds").samples;
    assert.ok(histogram.count >= 1 && histogram.sum > 0);
    const registry = new Registry();
    prometheus.addLimiter(limiter, { registry });
    assert.deepEqual(exposed(await registry.metrics()), exposed(limiter.metricsText()));
    const { observed } = observing((meter) => opentelemetry.addLimiter(limiter, { meter }));
    const { values } = await observed();
    assert.equal(values["polylimit.store_duration.count {}"], histogram.count);
    assert.equal(values["polylimit.store_duration.sum {}"], histogram.sum);
    assert.equal(values['polylimit.store_duration.bucket {"le":"+Inf"}'], histogram.count);
    limiter.close();
  });
});

test("several limiters of a registry have a label", async (t) => {
  const [edge, inner] = [used(t), used(t)];
  const registry = new Registry();
  prometheus.addLimiter(edge, { registry, name: "edge" });
  prometheus.addLimiter(inner, { registry, name: "inner" });
  const invalid = { code: "invalid_argument" };
  assert.throws(() => prometheus.addLimiter(used(t), { registry, name: "inner" }), invalid);
  assert.throws(() => prometheus.addLimiter(edge, { registry, name: "another" }), invalid);
  assert.throws(() => prometheus.addLimiter({}, { registry }), invalid);
  const text = await registry.metrics();
  for (const name of ["edge", "inner"]) assert.ok(text.includes(`store="memory",limiter="${name}"} 1\n`), name);
  prometheus.removeLimiter(inner, { registry });
  assert.doesNotMatch(await registry.metrics(), /inner/);
  prometheus.removeLimiter(edge, { registry });
  prometheus.removeLimiter(edge, { registry });
  assert.equal((await registry.metrics()).trim(), "");
  prometheus.addLimiter(edge, { registry });
  assert.match(await registry.metrics(), /store="memory"\} 1\n/);
});

test("a cluster adds up the counts of its workers", async (t) => {
  const limiter = used(t);
  const registry = new Registry();
  prometheus.addLimiter(limiter, { registry });
  const worker = await registry.getMetricsAsJSON();
  const text = await AggregatorRegistry.aggregate([worker, structuredClone(worker)]).metrics();
  assert.match(text, /polylimit_decisions_total\{policy="api",result="denied",source="store"\} 2\n/);
  assert.match(text, /polylimit_quota_limit_units\{policy="api",quota="2\/minute"\} 2\n/);
});

/** A meter whose observations can be read, by instrument and attributes. */
function observing(add) {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const provider = new MeterProvider({ readers: [reader] });
  const meter = provider.getMeter("program");
  add(meter);
  const observed = async () => {
    const { resourceMetrics, errors } = await reader.collect();
    assert.deepEqual(errors, []);
    const metrics = resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics);
    const points = metrics.flatMap(({ descriptor, dataPoints }) =>
      dataPoints.map(({ attributes, value }) => [`${descriptor.name} ${JSON.stringify(attributes)}`, value]),
    );
    return { values: Object.fromEntries(points), metrics };
  };
  return { meter, observed };
}

test("OpenTelemetry observes every sample", async (t) => {
  const limiter = used(t);
  const { meter, observed } = observing((meter) => opentelemetry.addLimiter(limiter, { meter }));
  const { values, metrics } = await observed();
  const expected = limiter.metrics().flatMap(({ name, samples }) => {
    const instrument = name.replace("polylimit_", "polylimit.").replace(/_(total|seconds)$/, "");
    return samples.map(({ labels, value }) => [`${instrument} ${JSON.stringify(labels)}`, value]);
  });
  assert.deepEqual(values, Object.fromEntries(expected));
  const period = metrics.find(({ descriptor }) => descriptor.name === "polylimit.quota_period");
  assert.equal(period.descriptor.unit, "s");
  const decisions = metrics.find(({ descriptor }) => descriptor.name === "polylimit.decisions");
  assert.equal(decisions.isMonotonic, true);

  const other = used(t);
  opentelemetry.addLimiter(other, { meter, name: "other" });
  assert.throws(() => opentelemetry.addLimiter(used(t), { meter, name: "other" }), { code: "invalid_argument" });
  const denied = { policy: "api", result: "denied", source: "store" };
  const both = (await observed()).values;
  assert.equal(both[`polylimit.decisions ${JSON.stringify({ ...denied, limiter: "other" })}`], 1);
  assert.equal(both[`polylimit.decisions ${JSON.stringify(denied)}`], 1);
  opentelemetry.removeLimiter(limiter, { meter });
  opentelemetry.removeLimiter(other, { meter });
  opentelemetry.addLimiter(limiter, { meter, name: "edge" });
  assert.equal((await observed()).values[`polylimit.decisions ${JSON.stringify({ ...denied, limiter: "edge" })}`], 1);
});
