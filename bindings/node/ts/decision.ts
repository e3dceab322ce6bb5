/** The answers of operations: their types, and how they are read from the shared arrays. */

import { DecisionFlag, Field } from "./addon";
import { type PolylimitError, toPublicError } from "./errors";
import { exchange, NUMBERS_PER_QUOTA, fields as sharedFields } from "./exchange";
import { tables } from "./native";
import type { Cause, Degradation, Source } from "./tables";

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

/**
 * One quota's verdict on the request of a decision, with its own view of the key. The quotas of a policy decide independently of each
 * other: the request is admitted when each of them admits it.
 */
export interface QuotaVerdict extends QuotaUsage {
  /** Whether this quota admits the request. */
  readonly allowed: boolean;
  /**
   * Whole milliseconds, rounded up, until this quota would admit the same request if no other arrives. 0 when it admits it; `null`
   * means never: the cost exceeds what the quota can ever admit.
   */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
}

/** The properties of every answer. */
interface Common {
  /** Units per period: the least over the quotas. */
  readonly limit: number;
  /** Whole units that can be spent right now, after this operation: the least over the quotas. */
  readonly remaining: number;
  /** Milliseconds, exact to the microsecond, until nothing counts as used if nothing else arrives: the longest over the quotas. */
  readonly resetAfterMs: number;
  /** Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit. */
  readonly over: number;
  /** Where the answer came from: the store, or what decided without it. */
  readonly source: Source;
  /** Why a healthy store might have answered otherwise; `null` when the answer is exact. */
  readonly degraded: Degradation | null;
  /** Each quota's own view, in the policy's order. */
  readonly quotas: readonly QuotaUsage[];
}

/** The answer to a check, a peek, an acquire or a reserve. */
export interface Decision extends Common {
  /** Whether every quota of the policy admits the request. */
  readonly allowed: boolean;
  /**
   * Whole milliseconds, rounded up, until the same request would be admitted if no other arrives: a timer of this time does not end
   * too early. 0 when allowed, unless in shadow; `null` means never: the cost exceeds what a quota can ever admit.
   */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
  /**
   * Whole milliseconds, rounded up, that this admitted request must wait before it proceeds: leaky bucket only, otherwise 0. Only
   * `acquire` waits by itself.
   */
  readonly delayMs: number;
  /** The same in exact microseconds. */
  readonly delayUs: number;
  /** Why the request was denied, or admitted without the store; `null` for every other decision. */
  readonly cause: Cause | null;
  /** Whether the request's units were the first beyond a quota's limit: some quota's `over` is above 0 and at most what it spent. */
  readonly crossed: boolean;
  /** Whether the pool of an elastic policy admitted the request; then nothing was spent in the policy itself. */
  readonly elastic: boolean;
  /** Whether the request would have been denied if its policy were not in shadow; then `retryAfterMs` is that of the denial. */
  readonly shadowed: boolean;
  /** Each quota's verdict and its own view of the key, in the policy's order: they show which quota denied a request. */
  readonly quotas: readonly QuotaVerdict[];
}

/** The answer to a take, a charge, a refund, a reset or a block, and to a commit, a cancel or a renew: the state after it. */
export interface Usage extends Common {
  /** The units that a take has spent from every quota; 0 for every other operation. */
  readonly taken: number;
  /** Whether a commit, a cancel or a renew has found the reservation; `true` for every other operation. */
  readonly found: boolean;
  /** Whether this was a commit of an id that was committed before and is remembered, so that nothing was charged. */
  readonly repeated: boolean;
}

const fields = sharedFields;
const sources = tables.sources as readonly Source[];
const causes = tables.causes as readonly Cause[];
const degradations = tables.degradations as readonly Degradation[];

export function readDecision(): Decision {
  const retryAfterUs = waitIn(Field.RetryAfterUs);
  const delayUs = fields[Field.DelayUs];
  const details = fields[Field.Details];
  return {
    allowed: fields[Field.Allowed] === 1,
    limit: fields[Field.Limit],
    remaining: fields[Field.Remaining],
    retryAfterMs: wholeMs(retryAfterUs),
    retryAfterUs,
    resetAfterMs: fields[Field.ResetAfterMs],
    over: fields[Field.Over],
    delayMs: Math.ceil(delayUs / 1000),
    delayUs,
    cause: details < DecisionFlag.Radix ? null : causes[(details / DecisionFlag.Radix - 1) | 0],
    crossed: (details & DecisionFlag.Crossed) !== 0,
    elastic: (details & DecisionFlag.Elastic) !== 0,
    shadowed: (details & DecisionFlag.Shadowed) !== 0,
    source: sources[fields[Field.Source]],
    degraded: readDegraded(),
    quotas: readVerdicts(),
  };
}

export function readUsage(): Usage {
  return {
    taken: fields[Field.Taken],
    found: (fields[Field.Found] & 1) !== 0,
    repeated: (fields[Field.Found] & 2) !== 0,
    limit: fields[Field.Limit],
    remaining: fields[Field.Remaining],
    resetAfterMs: fields[Field.ResetAfterMs],
    over: fields[Field.Over],
    source: sources[fields[Field.Source]],
    degraded: readDegraded(),
    quotas: readQuotas(),
  };
}

/** The time in a place of the array; `null` for never. */
function waitIn(at: number): number | null {
  const us = fields[at];
  return us < 0 ? null : us;
}

/** A time as whole milliseconds, rounded up. */
export function wholeMs(us: number | null): number | null {
  return us === null ? null : Math.ceil(us / 1000);
}

function readDegraded(): Degradation | null {
  const at = fields[Field.Degraded];
  return at < 0 ? null : degradations[at];
}

/** The quotas of a decision. */
function readVerdicts(): QuotaVerdict[] {
  const count = fields[Field.Quotas];
  if (count === 1) {
    return [readVerdict(Field.Limit, Field.Remaining, Field.ResetAfterMs, Field.Over, Field.QuotaRetryAfterUs)];
  }
  const quotas: QuotaVerdict[] = [];
  for (let quota = 0; quota < count; quota++) {
    const at = Field.FirstQuota + NUMBERS_PER_QUOTA * quota;
    quotas.push(readVerdict(at, at + 1, at + 2, at + 3, at + 4));
  }
  return quotas;
}

function readVerdict(limit: number, remaining: number, resetAfter: number, over: number, wait: number): QuotaVerdict {
  const retryAfterUs = waitIn(wait);
  return {
    allowed: retryAfterUs === 0,
    limit: fields[limit],
    remaining: fields[remaining],
    retryAfterMs: wholeMs(retryAfterUs),
    retryAfterUs,
    resetAfterMs: fields[resetAfter],
    over: fields[over],
  };
}

/** The quotas of a usage. */
function readQuotas(): QuotaUsage[] {
  const count = fields[Field.Quotas];
  if (count === 1) return [readQuota(Field.Limit, Field.Remaining, Field.ResetAfterMs, Field.Over)];
  const quotas: QuotaUsage[] = [];
  for (let quota = 0; quota < count; quota++) {
    const at = Field.FirstQuota + NUMBERS_PER_QUOTA * quota;
    quotas.push(readQuota(at, at + 1, at + 2, at + 3));
  }
  return quotas;
}

function readQuota(limit: number, remaining: number, resetAfter: number, over: number): QuotaUsage {
  return {
    limit: fields[limit],
    remaining: fields[remaining],
    resetAfterMs: fields[resetAfter],
    over: fields[over],
  };
}

/** Reads several decisions; in place of one that failed stands its error. */
export function readDecisions(): (Decision | PolylimitError)[] {
  const count = fields[Field.Quotas];
  const decisions: (Decision | PolylimitError)[] = [];
  for (let at = 0; at < count; at++) {
    try {
      exchange.loadDecision(at);
      decisions.push(readDecision());
    } catch (thrown) {
      decisions.push(toPublicError(thrown) as PolylimitError);
    }
  }
  return decisions;
}

/** The decisions of the valid checks, with the errors of the others in their places. */
export function withErrors<T>(
  decisions: readonly T[],
  errors: ReadonlyMap<number, PolylimitError>,
): (T | PolylimitError)[] {
  let next = 0;
  const length = decisions.length + errors.size;
  return Array.from({ length }, (_, at) => errors.get(at) ?? decisions[next++]);
}

/** Writes a decision into the shared arrays, so that the addon can make header fields of it. */
export function writeDecision(decision: Decision): void {
  fields[Field.Allowed] = decision.allowed ? 1 : 0;
  fields[Field.RetryAfterUs] = waitOf(decision);
  fields[Field.DelayUs] = decision.delayUs;
  fields[Field.Source] = sources.indexOf(decision.source);
  fields[Field.Degraded] = decision.degraded === null ? -1 : degradations.indexOf(decision.degraded);
  fields[Field.Details] = detailsOf(decision);
  fields[Field.Limit] = decision.limit;
  fields[Field.Remaining] = decision.remaining;
  fields[Field.ResetAfterMs] = decision.resetAfterMs;
  fields[Field.Over] = decision.over;
  fields[Field.Quotas] = decision.quotas.length;
  if (decision.quotas.length === 1) {
    fields[Field.QuotaRetryAfterUs] = waitOf(decision.quotas[0]);
    return;
  }
  let at: number = Field.FirstQuota;
  for (const quota of decision.quotas) {
    fields[at++] = quota.limit;
    fields[at++] = quota.remaining;
    fields[at++] = quota.resetAfterMs;
    fields[at++] = quota.over;
    fields[at++] = waitOf(quota);
  }
}

/** An object that is not from a decision has no wait, which the addon refuses. */
function waitOf({ retryAfterUs }: { readonly retryAfterUs: number | null }): number {
  return retryAfterUs === null ? -1 : retryAfterUs;
}

function detailsOf({ cause, crossed, elastic, shadowed }: Decision): number {
  const flags =
    (crossed ? DecisionFlag.Crossed : 0) |
    (elastic ? DecisionFlag.Elastic : 0) |
    (shadowed ? DecisionFlag.Shadowed : 0);
  return (cause === null ? 0 : causes.indexOf(cause) + 1) * DecisionFlag.Radix + flags;
}
