/** Metrics of a limiter as values. */

/** A text that monitoring systems read: the format of Prometheus, version 0.0.4, or OpenMetrics, version 1.0.0. */
export type MetricsFormat = "prometheus" | "openmetrics";

/** Samples of one kind, under one name. */
export interface MetricFamily {
  /** The name, such as `polylimit_decisions_total`. That of a counter ends in `_total`. */
  readonly name: string;
  /** What is counted or measured, in one sentence. */
  readonly help: string;
  readonly kind: "counter" | "gauge" | "histogram";
  /** The samples, which differ in their labels; none where the family does not apply to the limiter. */
  readonly samples: readonly MetricSample[];
}

/** One number or histogram. */
export interface MetricSample {
  /** The labels: names with values, which are any text. No value is a key. */
  readonly labels: Readonly<Record<string, string>>;
  /** A number; beyond 2^53 it is rounded. */
  readonly value: number | MetricHistogram;
}

/** How many observations were at most some numbers. */
export interface MetricHistogram {
  /**
   * Upper bounds, in rising order, each with the number of observations up to it. The last bound, infinity, is left out: its
   * number is `count`.
   */
  readonly buckets: readonly (readonly [bound: number, count: number])[];
  /** The sum of the observations. */
  readonly sum: number;
  /** The number of observations. */
  readonly count: number;
}
