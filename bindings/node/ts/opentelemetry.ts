/**
 * Metrics of limiters as observable instruments of OpenTelemetry. The instrument of the family `polylimit_decisions_total` is
 * `polylimit.decisions`, and the labels of its samples are attributes.
 */

import { type Meter, metrics, type Observable } from "@opentelemetry/api";

import { LimiterSet, textBuckets } from "./collect";
import type { Limiter } from "./limiter";
import type { MetricFamily, MetricSample } from "./metrics";

export interface ObserveOptions {
  /** The meter; the default is the one of the name `polylimit` of the global provider, which has to be set before. */
  readonly meter?: Meter;
  /** The value of the attribute `limiter`, which distinguishes several limiters. One limiter may have none. */
  readonly name?: string;
}

/** An instrument, and what it observes in a sample of its family. */
interface Instrument {
  readonly family: string;
  readonly observable: Observable;
  readonly observed: (sample: MetricSample) => readonly Observed[];
}

type Observed = readonly [value: number, attributes: Readonly<Record<string, string>>];

const limitersOf = new WeakMap<Meter, LimiterSet>();

/**
 * Observes the metrics of a limiter at each collection; the meter keeps the limiter until it is removed. docs/metrics.md describes
 * each.
 *
 * @throws PolylimitError `invalid_argument` when the limiter was added already, or another one of that name, or without one
 */
export function addLimiter(limiter: Limiter, { meter = defaultMeter(), name }: ObserveOptions = {}): void {
  const known = limitersOf.get(meter);
  const limiters = known ?? new LimiterSet();
  limiters.add(limiter, name);
  if (known !== undefined) return;
  limitersOf.set(meter, limiters);
  const instruments = [...limiters.families().values()].flatMap((family) => instrumentsOf(meter, family));
  meter.addBatchObservableCallback(
    (result) => {
      const families = limiters.families();
      for (const { family, observable, observed } of instruments) {
        for (const [value, attributes] of families.get(family)?.samples.flatMap(observed) ?? []) {
          result.observe(observable, value, attributes);
        }
      }
    },
    instruments.map(({ observable }) => observable),
  );
}

/** Observes a limiter no longer; one that is not there changes nothing. */
export function removeLimiter(limiter: Limiter, { meter = defaultMeter() }: Pick<ObserveOptions, "meter"> = {}): void {
  // The instruments of a meter cannot be removed. Without limiters they have no observations.
  limitersOf.get(meter)?.remove(limiter);
}

const defaultMeter = (): Meter => metrics.getMeter("polylimit");

function instrumentsOf(meter: Meter, { name: family, help: description, kind }: MetricFamily): Instrument[] {
  const isTime = family.endsWith("_seconds");
  const unit = isTime ? "s" : "";
  const name = family.replace(/^polylimit_/, "polylimit.").replace(/_(total|seconds)$/, "");
  if (kind === "gauge") {
    return [{ family, observable: meter.createObservableGauge(name, { description, unit }), observed: numberOf }];
  }
  if (kind === "counter") {
    return [{ family, observable: meter.createObservableCounter(name, { description, unit }), observed: numberOf }];
  }
  // OpenTelemetry has no histogram that is observed, so its parts are counters.
  return [
    [`${name}.bucket`, "", bucketsOf] as const,
    [`${name}.count`, "", countOf] as const,
    [`${name}.sum`, unit, sumOf] as const,
  ].map(([part, unit, observed]) => {
    return { family, observable: meter.createObservableCounter(part, { description, unit }), observed };
  });
}

function numberOf({ labels, value }: MetricSample): Observed[] {
  return typeof value === "number" ? [[value, labels]] : [];
}

function bucketsOf({ labels, value }: MetricSample): Observed[] {
  if (typeof value === "number") return [];
  return textBuckets(value).map(([le, count]) => [count, { ...labels, le }]);
}

function countOf({ labels, value }: MetricSample): Observed[] {
  return typeof value === "number" ? [] : [[value.count, labels]];
}

function sumOf({ labels, value }: MetricSample): Observed[] {
  return typeof value === "number" ? [] : [[value.sum, labels]];
}
