/** What operations take and answer; the properties are those of the package for Node. */

import type { Cause, Degradation, Outage, Source } from "./tables.js";
import type { ManualClock, Quota } from "./values.js";

/** A key: text, a whole number, or bytes. */
export type Key = string | number | bigint | Uint8Array;

/** Quotas as text (`"100/minute; 1000/hour"`), as a `Quota`, or several of them. */
export type Quotas = string | Quota | readonly (string | Quota)[];

/** A policy: its quotas, or an object with other settings too. */
export type Policy = Quotas | { readonly quotas: Quotas; readonly outage?: Outage | undefined };

/** The options of a limiter. */
export interface LimiterOptions {
  /** The policies by name. A request can also name quotas, which become a policy then. */
  readonly policies?: Readonly<Record<string, Policy>> | ReadonlyMap<string, Policy> | undefined;
  /** A policy document: TOML or JSON text, or an object. */
  readonly document?: string | object | undefined;
  /** The clock of the decisions; by default the host's, which counts milliseconds. */
  readonly clock?: ManualClock | undefined;
  /** The most keys with a state. */
  readonly maxKeys?: number | undefined;
  /** How many of the keys that are denied or admitted most often are observed. */
  readonly observeKeys?: number | undefined;
}

/** The options of a request. */
export interface RequestOptions {
  /** A policy's name, or quotas such as `"100/minute"` or a `Quota`. It is optional when the limiter has one policy. */
  readonly policy?: string | Quota | undefined;
  /** The units that the request spends: a whole number from 0 to 10^12; 1 by default. */
  readonly cost?: number | undefined;
  /** The part of each quota's capacity that is left for others, in percent: 0 to 99. */
  readonly headroom?: number | undefined;
  /** The plan of the key, whose quotas decide where the policy has it. */
  readonly plan?: string | undefined;
}

/** One of several checks. */
export interface Check extends RequestOptions {
  readonly key: Key;
}

/** The id of a reservation: text or bytes, 1 to 64 of them. */
export type ReservationId = string | Uint8Array;

/** The terms of reservations. Nothing renews them here: a module has no timer, so call `renew`. */
export interface ReservationTerms {
  /** The id; a random one by default. */
  readonly id?: ReservationId | undefined;
  /** How long the reservation lasts, in milliseconds; 30 seconds by default. */
  readonly ttlMs?: number | undefined;
  /** For how many milliseconds a commit is remembered, so that a repeated one charges nothing. */
  readonly rememberMs?: number | undefined;
}

/** One quota's own view of a key, after the operation. */
export interface QuotaUsage {
  /** Units per period; reservations at a time for `concurrency`. */
  readonly limit: number;
  /** Whole units, or reservations, that this quota would admit right now. */
  readonly remaining: number;
  /** Milliseconds, exact to the microsecond, until nothing counts as used under this quota if nothing else arrives. */
  readonly resetAfterMs: number;
  /** Units of the quota's excess that are in use: above 0 once use is beyond the limit. */
  readonly over: number;
}

/** One quota's verdict on a request. */
export interface QuotaVerdict extends QuotaUsage {
  /** Whether this quota admits the request. */
  readonly allowed: boolean;
  /** Whole milliseconds, rounded up, until this quota would admit the same request; 0 when it does, `null` means never. */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
}

interface Common {
  /** Units per period: the least over the quotas. */
  readonly limit: number;
  /** Whole units that can be spent right now: the least over the quotas. */
  readonly remaining: number;
  /** Milliseconds, exact to the microsecond, until nothing counts as used if nothing else arrives. */
  readonly resetAfterMs: number;
  /** Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit. */
  readonly over: number;
  /** Where the answer came from: the store, or what decided without it. */
  readonly source: Source;
  /** Why a healthy store might have answered otherwise; `null` when the answer is exact. */
  readonly degraded: Degradation | null;
}

/** The answer to a check, a peek or a reserve. */
export interface Decision extends Common {
  /** Whether the request is admitted: every quota admits it. */
  readonly allowed: boolean;
  /** Whole milliseconds, rounded up, until the request would be admitted; 0 when allowed, and `null` means never. */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
  /** Whole milliseconds, rounded up, that an admitted request must wait: leaky bucket only. */
  readonly delayMs: number;
  readonly delayUs: number;
  readonly cause: Cause | null;
  readonly crossed: boolean;
  readonly elastic: boolean;
  readonly shadowed: boolean;
  readonly quotas: readonly QuotaVerdict[];
}

/** The answer to every other operation on a key: the state after it. */
export interface Usage extends Common {
  readonly taken: number;
  readonly found: boolean;
  readonly repeated: boolean;
  readonly quotas: readonly QuotaUsage[];
}

/** What an application says about a request, so that the rules of a document find its policies. What is not given is absent. */
export interface RequestAttributes {
  readonly method?: string | undefined;
  readonly path?: string | undefined;
  /** The address at the other end of the socket. */
  readonly peer?: string | undefined;
  readonly headers?:
    | Iterable<readonly [name: string, value: string]>
    | Readonly<Record<string, string | readonly string[] | undefined>>
    | undefined;
  /** What the application knows of the request, such as `user` or `plan`. */
  readonly attributes?: Readonly<Record<string, Key | null | undefined>> | undefined;
}

/** A policy that the rules of a document apply to a request. */
export interface PolicyMatch {
  readonly policy: string;
  readonly key: string | Uint8Array;
  readonly cost: number;
  readonly headroom: number;
}

/** The decision of one policy on a request. */
export interface MatchedDecision extends PolicyMatch {
  readonly decision: Decision;
  readonly reservation: ReservationId | null;
}

/** The decision on a request by the lists, rules and policies of a document. */
export interface RequestDecision {
  readonly allowed: boolean;
  readonly cause: Cause | null;
  /** The HTTP status of a denial; `null` when allowed. */
  readonly status: number | null;
  readonly retryAfterMs: number | null;
  readonly retryAfterUs: number | null;
  readonly decisions: readonly MatchedDecision[];
}

/** Which document is active. */
export interface ConfigurationStatus {
  readonly source: string;
  readonly version: number;
  readonly digest: string;
  readonly error: string | null;
}

/** How a candidate and the effective quotas have decided the same checks. */
export interface CandidateCounts {
  readonly bothAllow: number;
  readonly onlyLiveDenies: number;
  readonly onlyCandidateDenies: number;
  readonly bothDeny: number;
}
