/** Quotas and policies as programs write them, and as the addon reads them. */

import { types } from "node:util";

import type { QuotaNumbers } from "./addon";
import { checkedOptions, describe, hasProperties, notAllowed, number, text } from "./arguments";
import { callNative, invalidArgument } from "./errors";
import { native } from "./native";
import type { Algorithm, Outage } from "./tables";

/** The settings of a quota other than its limit and period. The defaults are those of a quota in text. */
export interface QuotaOptions {
  /** The algorithm that counts. */
  readonly algorithm?: Algorithm;
  /** The capacity of a bucket in units, 1 to 10^12; token and leaky bucket only. */
  readonly burst?: number;
  /** How many tokens arrive at a time; token bucket only. */
  readonly step?: number;
  /** The number of sub-windows of the period, 1 to 60; sliding window only. */
  readonly buckets?: number;
  /** Windows start at multiples of the period since the Unix epoch; fixed window only. */
  readonly aligned?: boolean;
  /** Whether denied requests are charged too. */
  readonly countDenied?: boolean;
  /** Units beyond the limit or burst that are admitted as well and reported as `over` in decisions: 0 to the limit. */
  readonly excess?: number;
}

const OPTIONS = ["algorithm", "burst", "step", "buckets", "aligned", "countDenied", "excess"];

const SECOND_MS = 1000;

/** At most `limit` units per period, counted by an algorithm. Immutable, and always valid. */
export class Quota {
  declare readonly algorithm: Algorithm;
  /** Units per period, 0 to 10^12. */
  declare readonly limit: number;
  /** The period in milliseconds, 1 ms to 366 days; 0 for `concurrency`, which has none. By the calendar, no window is shorter. */
  declare readonly periodMs: number;
  /** The windows by the calendar of a fixed window, such as `month from=15 zone=Europe/Berlin`. */
  declare readonly calendar?: string;
  /** The most units at once: the burst of a bucket, the limit of a window. */
  declare readonly capacity: number;
  declare readonly step?: number;
  declare readonly buckets?: number;
  declare readonly aligned: boolean;
  declare readonly countDenied: boolean;
  /** Units beyond the limit or burst that are admitted as well. */
  declare readonly excess: number;
  /** The canonical text, which parses to an equal quota. */
  declare readonly text: string;

  /**
   * @param limit whole units, 0 to 10^12
   * @param periodMs milliseconds, with a fraction down to the microsecond; 1 ms to 366 days
   * @throws PolylimitError `invalid_argument` that names the setting, what was read and what is allowed
   */
  constructor(limit: number, periodMs: number, options: QuotaOptions = {}) {
    Object.freeze(Object.assign(this, build(limit, periodMs, options)));
  }

  /**
   * Reads a quota such as `100/minute` or `10/s token_bucket burst=20`.
   *
   * @throws PolylimitError `invalid_argument` that names what was read, where, and what is allowed
   */
  static parse(quota: string): Quota {
    const numbers = callNative(() => native.parseQuota(text("quota", quota, 'text such as "100/minute"')));
    return Object.freeze(Object.assign(Object.create(Quota.prototype), numbers));
  }

  /** `limit` units per second. */
  static perSecond(limit: number, options: QuotaOptions = {}): Quota {
    return new Quota(limit, SECOND_MS, options);
  }

  /** `limit` units per minute. */
  static perMinute(limit: number, options: QuotaOptions = {}): Quota {
    return new Quota(limit, 60 * SECOND_MS, options);
  }

  /** `limit` units per hour. */
  static perHour(limit: number, options: QuotaOptions = {}): Quota {
    return new Quota(limit, 3600 * SECOND_MS, options);
  }

  /** At most `limit` reservations of a key at a time, such as `20 concurrent`: 0 to 10^12. */
  static concurrent(limit: number): Quota {
    return new Quota(limit, 0, { algorithm: "concurrency" });
  }

  toString(): string {
    return this.text;
  }
}

function build(limit: unknown, periodMs: unknown, options: QuotaOptions): QuotaNumbers {
  checkedOptions("options", options, OPTIONS);
  const units = "a whole number of units";
  for (const name of ["burst", "step", "buckets", "excess"] as const) {
    if (options[name] !== undefined) number(name, options[name], units);
  }
  for (const name of ["aligned", "countDenied"] as const) {
    const value: unknown = options[name];
    if (value !== undefined && typeof value !== "boolean") throw notAllowed(name, value, "true or false");
  }
  if (options.algorithm !== undefined) text("algorithm", options.algorithm, "the name of an algorithm");
  const checked = [number("limit", limit, units), number("periodMs", periodMs, "a number of milliseconds")] as const;
  return callNative(() => native.buildQuota(...checked, options));
}

/** Quotas as text (`"100/minute; 1000/hour"`), as a `Quota`, or several of them. */
export type Quotas = string | Quota | readonly (string | Quota)[];

/** Quotas, with the other settings of their policy. */
export interface PolicyOptions {
  readonly quotas: Quotas;
  /** How the policy decides while its store is unavailable; by default the limiter's `outage`. */
  readonly outage?: Outage;
  /**
   * Leases busy keys: takes units from a store in Redis in advance, and spends them in this process. `"auto"`, the largest
   * number of units (`"100"`), or units and a time (`"100/500ms"`).
   */
  readonly lease?: string;
}

/** A policy: its quotas, or an object with other settings too. */
export type Policy = Quotas | PolicyOptions;

/** The policies of a limiter by name. */
export type Policies = Readonly<Record<string, Policy>> | ReadonlyMap<string, Policy>;

/** A policy as the limiter has it. */
export interface PolicyView {
  readonly name: string;
  readonly quotas: readonly Quota[];
}

type PolicyRow = { name: string; quotas: string; outage?: string; lease?: string };

export function policyRows(policies: Policies): PolicyRow[] {
  return entries(policies).map(([name, policy]) => {
    text("a policy's name", name, "text");
    if (!isOptions(policy)) return { name, quotas: quotasText(name, policy) };
    const { quotas, outage, lease } = checkedOptions(`policy ${name}`, policy, ["quotas", "outage", "lease"]);
    if (quotas === undefined) throw invalidArgument(`policy ${name} has no quotas: allowed are ${QUOTAS}`);
    if (outage !== undefined) text("outage", outage, "the name of an outage policy");
    if (lease !== undefined) text("lease", lease, "auto, or units such as 100/500ms");
    return { name, quotas: quotasText(name, quotas), outage, lease };
  });
}

function entries(policies: Policies): (readonly [string, Policy])[] {
  if (types.isMap(policies)) return [...(policies as ReadonlyMap<string, Policy>)];
  if (!hasProperties(policies)) throw notAllowed("policies", policies, "an object or a Map of quotas by policy name");
  return Object.entries(policies);
}

function isOptions(policy: Policy): policy is PolicyOptions {
  return typeof policy === "object" && policy !== null && !Array.isArray(policy) && !(policy instanceof Quota);
}

const QUOTAS = 'text such as "100/minute", a Quota, or an array of them';

export function quotasText(name: string, quotas: Quotas): string {
  const several = Array.isArray(quotas) ? (quotas as readonly unknown[]) : [quotas];
  const texts = several.map((quota) => {
    if (quota instanceof Quota) return quota.text;
    if (typeof quota === "string") return quota;
    throw invalidArgument(`policy ${name} is ${describe(quota)}: allowed are ${QUOTAS}`);
  });
  if (texts.length === 0) throw invalidArgument(`policy ${name} is an empty array: allowed are ${QUOTAS}`);
  return texts.join("; ");
}

/** Makes a view of the addon's row: a policy's name, then its quotas as text. */
export function policyView([name, ...quotas]: readonly string[]): PolicyView {
  return { name, quotas: quotas.map((quota) => Quota.parse(quota)) };
}
