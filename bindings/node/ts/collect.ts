/** The metrics of several limiters as those of one process, for the adapters to monitoring systems. */

import { notAllowed, text } from "./arguments";
import { invalidArgument } from "./errors";
import { Limiter } from "./limiter";
import type { MetricFamily, MetricHistogram, MetricSample } from "./metrics";

/** The buckets of a histogram with their bounds as in the text formats, up to infinity. */
export function textBuckets({ buckets, count }: MetricHistogram): [bound: string, count: number][] {
  const finite = buckets.map(([bound, count]): [string, number] => {
    return [Number.isInteger(bound) ? bound.toFixed(1) : String(bound), count];
  });
  return [...finite, ["+Inf", count]];
}

/** Limiters, each with its name, if it has one, as the label `limiter` of its samples. */
export class LimiterSet {
  readonly #names = new Map<Limiter, string | undefined>();
  #families: Map<string, MetricFamily> | undefined;

  /** Adds a limiter under a name; at most one has none. */
  add(limiter: Limiter, name: string | undefined): void {
    if (!(limiter instanceof Limiter)) throw notAllowed("limiter", limiter, "a Limiter");
    if (name !== undefined) text("name", name, "text");
    if (this.#names.has(limiter)) throw invalidArgument("limiter was added already: remove it to change its name");
    if ([...this.#names.values()].includes(name)) {
      const named = name === undefined ? "without a name" : `of the name ${name}`;
      throw invalidArgument(`a limiter ${named} was added already: give each limiter a name of its own`);
    }
    this.#names.set(limiter, name);
    this.#families = undefined;
  }

  /** Removes a limiter; one that is not there changes nothing. */
  remove(limiter: Limiter): void {
    this.#names.delete(limiter);
    this.#families = undefined;
  }

  get isEmpty(): boolean {
    return this.#names.size === 0;
  }

  /** The families of all limiters by name. They are collected once for all calls in one turn of the event loop. */
  families(): ReadonlyMap<string, MetricFamily> {
    if (this.#families === undefined) {
      this.#families = this.#collect();
      queueMicrotask(() => {
        this.#families = undefined;
      });
    }
    return this.#families;
  }

  #collect(): Map<string, MetricFamily> {
    const families = new Map<string, MetricFamily & { readonly samples: MetricSample[] }>();
    for (const [limiter, name] of this.#names) {
      const own: Record<string, string> = name === undefined ? {} : { limiter: name };
      for (const family of limiter.metrics()) {
        const collected = families.get(family.name) ?? { ...family, samples: [] };
        families.set(family.name, collected);
        for (const { labels, value } of family.samples) {
          collected.samples.push({ labels: { ...labels, ...own }, value });
        }
      }
    }
    return families;
  }
}
