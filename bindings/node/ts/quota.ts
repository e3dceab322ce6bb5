import type { QuotaNumbers } from "./addon";
import { known, number, refused, text } from "./argument";
import { calling } from "./failure";
import { native } from "./native";
import type { Algorithm } from "./tables";

/** The settings of a quota beside its limit and period. What is left out is as for a quota in text. */
export interface QuotaOptions {
  /** How to count. */
  readonly algorithm?: Algorithm;
  /** The capacity of a bucket in units, 1 to 10^12; token and leaky bucket only. */
  readonly burst?: number;
  /** Tokens arrive so many at a time; token bucket only. */
  readonly step?: number;
  /** Into how many sub-windows the period is cut, 1 to 60; sliding window only. */
  readonly buckets?: number;
  /** Windows start at multiples of the period since the Unix epoch; fixed window only. */
  readonly aligned?: boolean;
  /** Denied requests are charged too. */
  readonly countDenied?: boolean;
}

const OPTIONS = ["algorithm", "burst", "step", "buckets", "aligned", "countDenied"];

const SECOND_MS = 1000;

/** At most `limit` units per period, counted by an algorithm. Immutable, and always valid. */
export class Quota {
  declare readonly algorithm: Algorithm;
  /** Units per period, 0 to 10^12. */
  declare readonly limit: number;
  /** The period in milliseconds, 1 ms to 366 days. */
  declare readonly periodMs: number;
  /** The burst of a bucket, the limit of a window. */
  declare readonly capacity: number;
  declare readonly step?: number;
  declare readonly buckets?: number;
  declare readonly aligned: boolean;
  declare readonly countDenied: boolean;
  /** The canonical text, which parses to an equal quota. */
  declare readonly text: string;

  /**
   * @param limit whole units, 0 to 10^12
   * @param periodMs milliseconds, with a fraction down to the microsecond; 1 ms to 366 days
   * @throws PolylimitError `invalid_argument` with the setting, what it was and what is allowed
   */
  constructor(limit: number, periodMs: number, options: QuotaOptions = {}) {
    Object.freeze(Object.assign(this, made(limit, periodMs, options)));
  }

  /**
   * Reads a quota such as `100/minute` or `10/s token_bucket burst=20`.
   *
   * @throws PolylimitError `invalid_argument` that says what was read, where, and what is allowed
   */
  static parse(quota: string): Quota {
    const numbers = calling(() => native.parseQuota(text("quota", quota, 'text such as "100/minute"')));
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

  toString(): string {
    return this.text;
  }
}

function made(limit: unknown, periodMs: unknown, options: QuotaOptions): QuotaNumbers {
  known("options", options, OPTIONS);
  const units = "a whole number of units";
  for (const name of ["burst", "step", "buckets"] as const) {
    if (options[name] !== undefined) number(name, options[name], units);
  }
  for (const name of ["aligned", "countDenied"] as const) {
    const value: unknown = options[name];
    if (value !== undefined && typeof value !== "boolean") throw refused(name, value, "true or false");
  }
  if (options.algorithm !== undefined) text("algorithm", options.algorithm, "the name of an algorithm");
  const checked = [number("limit", limit, units), number("periodMs", periodMs, "a number of milliseconds")] as const;
  return calling(() => native.quotaOf(...checked, options));
}
