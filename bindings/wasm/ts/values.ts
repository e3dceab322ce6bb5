/** Quotas, and the manual clock. */

import { call, notAllowed } from "./errors.js";
import { buildQuota, NativeClock, parseQuota } from "./module/polylimit.js";
import type { Algorithm } from "./tables.js";

/** The settings of a quota other than its limit and period. */
export interface QuotaOptions {
  readonly algorithm?: Algorithm | undefined;
  readonly burst?: number | undefined;
  readonly step?: number | undefined;
  readonly buckets?: number | undefined;
  readonly aligned?: boolean | undefined;
  readonly countDenied?: boolean | undefined;
  readonly excess?: number | undefined;
}

/** At most `limit` units per period, counted by an algorithm. Immutable, and always valid. */
export class Quota {
  declare readonly algorithm: Algorithm;
  declare readonly limit: number;
  declare readonly periodMs: number;
  declare readonly calendar?: string;
  declare readonly capacity: number;
  declare readonly step?: number;
  declare readonly buckets?: number;
  declare readonly aligned: boolean;
  declare readonly countDenied: boolean;
  declare readonly excess: number;
  /** The canonical text, which parses to an equal quota. */
  declare readonly text: string;

  constructor(limit: number, periodMs: number, options: QuotaOptions = {}) {
    Object.freeze(
      Object.assign(
        this,
        call(() => buildQuota(limit, periodMs, options)),
      ),
    );
  }

  /** Reads a quota such as `100/minute` or `10/s token_bucket burst=20`. */
  static parse(quota: string): Quota {
    return Object.freeze(
      Object.assign(
        Object.create(Quota.prototype),
        call(() => parseQuota(quota)),
      ),
    );
  }

  /** At most `limit` reservations of a key at a time. */
  static concurrent(limit: number): Quota {
    return new Quota(limit, 0, { algorithm: "concurrency" });
  }

  toString(): string {
    return this.text;
  }
}

const natives = new WeakMap<ManualClock, NativeClock>();

/** A clock that stands still until it is set or advanced, and may go back. */
export class ManualClock {
  /** @param nowUs whole microseconds since the Unix epoch */
  constructor(nowUs: number) {
    natives.set(
      this,
      call(() => new NativeClock(nowUs)),
    );
  }

  get nowUs(): number {
    return nativeClock(this).nowUs();
  }

  setUs(nowUs: number): void {
    call(() => nativeClock(this).set(nowUs));
  }

  advanceMs(byMs: number): void {
    call(() => nativeClock(this).advance(byMs));
  }
}

/** The clock of the module; a limiter takes a share of it. */
export function nativeClock(clock: ManualClock): NativeClock {
  const found = natives.get(clock);
  if (found === undefined) throw notAllowed("clock", "a ManualClock");
  return found;
}
