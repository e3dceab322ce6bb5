/** What operations answer. */

import { Field } from "./addon";
import { exchange, fields as shared, tables } from "./exchange";
import { failure, type PolylimitError } from "./failure";
import type { Degradation, Source } from "./tables";

/** One quota's own view of a key, after the operation. */
export interface QuotaUsage {
  /** Units per period. */
  readonly limit: number;
  /** Whole units that this quota would still admit right now. */
  readonly remaining: number;
  /** Milliseconds until nothing counts as used under this quota if nothing else arrives. */
  readonly resetAfterMs: number;
}

/** What every answer says. Times are milliseconds with a fraction down to the microsecond. */
interface Common {
  /** Units per period: the least over the quotas. */
  readonly limit: number;
  /** Whole units that can still be spent right now, after this operation: the least over the quotas. */
  readonly remaining: number;
  /** Milliseconds until nothing counts as used any more if nothing else arrives: the longest over the quotas. */
  readonly resetAfterMs: number;
  /** Where the answer came from. */
  readonly source: Source;
  /** Why this is not what a healthy store would have answered for this key alone; `null` when it is. */
  readonly degraded: Degradation | null;
  /** Each quota's own view, in the policy's order. */
  readonly quotas: readonly QuotaUsage[];
}

/** The answer to a check, a peek or an acquire. */
export interface Decision extends Common {
  /** Whether every quota of the policy admits the request. */
  readonly allowed: boolean;
  /**
   * Milliseconds until the same request, alone, would be admitted: exactly then, and not one microsecond earlier. 0 when
   * allowed; `null` is never: the cost exceeds what a quota can ever admit.
   */
  readonly retryAfterMs: number | null;
  /** Milliseconds that this admitted request has to wait for its turn: leaky bucket only, otherwise 0. */
  readonly delayMs: number;
}

/** The answer to a take, a charge, a refund or a reset: what is left after it. */
export interface Usage extends Common {
  /** The units that a take has spent from every quota; 0 for every other operation. */
  readonly taken: number;
}

const fields = shared;
const sources = tables.sources as readonly Source[];
const degradations = tables.degradations as readonly Degradation[];

export function readDecision(): Decision {
  const retryAfterMs = fields[Field.RetryAfterMs];
  return {
    allowed: fields[Field.Allowed] === 1,
    limit: fields[Field.Limit],
    remaining: fields[Field.Remaining],
    retryAfterMs: retryAfterMs < 0 ? null : retryAfterMs,
    resetAfterMs: fields[Field.ResetAfterMs],
    delayMs: fields[Field.DelayMs],
    source: sources[fields[Field.Source]],
    degraded: readDegraded(),
    quotas: readQuotas(),
  };
}

export function readUsage(): Usage {
  return {
    taken: fields[Field.Taken],
    limit: fields[Field.Limit],
    remaining: fields[Field.Remaining],
    resetAfterMs: fields[Field.ResetAfterMs],
    source: sources[fields[Field.Source]],
    degraded: readDegraded(),
    quotas: readQuotas(),
  };
}

function readDegraded(): Degradation | null {
  const at = fields[Field.Degraded];
  return at < 0 ? null : degradations[at];
}

function readQuotas(): QuotaUsage[] {
  const count = fields[Field.Quotas];
  if (count === 1) {
    return [
      { limit: fields[Field.Limit], remaining: fields[Field.Remaining], resetAfterMs: fields[Field.ResetAfterMs] },
    ];
  }
  const quotas: QuotaUsage[] = [];
  for (let quota = 0; quota < count; quota++) quotas.push(readQuota(Field.FirstQuota + 3 * quota));
  return quotas;
}

function readQuota(at: number): QuotaUsage {
  return { limit: fields[at], remaining: fields[at + 1], resetAfterMs: fields[at + 2] };
}

/** Each decision of several, or its error. */
export function readDecisions(): (Decision | PolylimitError)[] {
  const count = fields[Field.Quotas];
  const decisions: (Decision | PolylimitError)[] = [];
  for (let at = 0; at < count; at++) {
    try {
      exchange.item(at);
      decisions.push(readDecision());
    } catch (thrown) {
      decisions.push(failure(thrown) as PolylimitError);
    }
  }
  return decisions;
}

/** The way back: what the addon is to write headers about. */
export function writeDecision(decision: Decision): void {
  fields[Field.Allowed] = decision.allowed ? 1 : 0;
  fields[Field.RetryAfterMs] = decision.retryAfterMs ?? -1;
  fields[Field.DelayMs] = decision.delayMs;
  fields[Field.Source] = sources.indexOf(decision.source);
  fields[Field.Degraded] = decision.degraded === null ? -1 : degradations.indexOf(decision.degraded);
  fields[Field.Limit] = decision.limit;
  fields[Field.Remaining] = decision.remaining;
  fields[Field.ResetAfterMs] = decision.resetAfterMs;
  fields[Field.Quotas] = decision.quotas.length;
  let at: number = Field.FirstQuota;
  for (const { limit, remaining, resetAfterMs } of decision.quotas) {
    fields[at++] = limit;
    fields[at++] = remaining;
    fields[at++] = resetAfterMs;
  }
}
