/** Metrics of limiters for `prom-client`, which hands them out with the program's other metrics. */

import { type Metric, type Registry, register } from "prom-client";

import { LimiterSet, textBuckets } from "./collect";
import type { Limiter } from "./limiter";
import type { MetricFamily, MetricSample } from "./metrics";

/** A number of `prom-client`. */
interface Value {
  readonly metricName?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface CollectOptions {
  /** The registry; the default is the one of `prom-client`. */
  readonly registry?: Registry;
  /** The value of the label `limiter`, which distinguishes several limiters. One limiter may have none. */
  readonly name?: string;
}

const limitersOf = new WeakMap<Registry, LimiterSet>();

/**
 * Adds the metrics of a limiter to a registry, which keeps the limiter until it is removed. docs/metrics.md describes each.
 *
 * In a cluster, `AggregatorRegistry` adds up counters and histograms of the workers. Of a gauge it takes the greatest number, of
 * `polylimit_store_up` the least.
 *
 * @throws PolylimitError `invalid_argument` when the limiter was added already, or another one of that name, or without one
 */
export function addLimiter(limiter: Limiter, { registry = register, name }: CollectOptions = {}): void {
  const known = limitersOf.get(registry);
  const limiters = known ?? new LimiterSet();
  limiters.add(limiter, name);
  if (known !== undefined) return;
  limitersOf.set(registry, limiters);
  for (const family of limiters.families().values()) {
    registry.registerMetric(new CollectedMetric(family, limiters) as unknown as Metric);
  }
}

/** Removes the metrics of a limiter from a registry; a limiter that is not there changes nothing. */
export function removeLimiter(limiter: Limiter, { registry = register }: Pick<CollectOptions, "registry"> = {}): void {
  const limiters = limitersOf.get(registry);
  limiters?.remove(limiter);
  if (!limiters?.isEmpty) return;
  limitersOf.delete(registry);
  for (const family of limiter.metrics()) registry.removeSingleMetric(family.name);
}

/** A family as a registry expects its metrics. The classes of `prom-client` count by themselves; this one is asked. */
class CollectedMetric {
  /** A registry in the format of OpenMetrics cuts `_total`, and writes it again. */
  name: string;
  readonly help: string;
  readonly type: MetricFamily["kind"];
  readonly aggregator: "sum" | "max" | "min";
  readonly #family: string;
  readonly #limiters: LimiterSet;

  constructor({ name, help, kind }: MetricFamily, limiters: LimiterSet) {
    this.name = name;
    this.help = help;
    this.type = kind;
    this.aggregator = kind !== "gauge" ? "sum" : name === "polylimit_store_up" ? "min" : "max";
    this.#family = name;
    this.#limiters = limiters;
  }

  async get() {
    const samples = this.#limiters.families().get(this.#family)?.samples ?? [];
    const { name, help, type, aggregator } = this;
    return { name, help, type, aggregator, values: samples.flatMap((sample) => values(name, sample)) };
  }

  /** The counts are the limiters', which have no reset. */
  reset(): void {}
}

function values(name: string, { labels, value }: MetricSample): Value[] {
  if (typeof value === "number") return [{ labels, value }];
  return [
    ...textBuckets(value).map(([le, count]) => ({
      metricName: `${name}_bucket`,
      labels: { le, ...labels },
      value: count,
    })),
    { metricName: `${name}_sum`, labels, value: value.sum },
    { metricName: `${name}_count`, labels, value: value.count },
  ];
}
