/**
 * The decisions about a request: as its handlers see them, and as later guards on its way need them. What two guards charge to
 * one policy for one key is charged once.
 */

import { type Key, keyOf } from "../arguments";
import type { Decision, QuotaUsage } from "../decision";
import type { Outcome } from "../headers";
import type { Limiter } from "../limiter";
import type { Degradation, Source } from "../tables";
import type { RateLimit } from "./options";

/** A decision under a policy, with what the request has spent there. */
export interface ChargedOutcome extends Outcome {
  readonly key: Key;
  /** The cost of the request under this policy: the sum of the charges. */
  readonly units: number;
  readonly charges: readonly Charge[];
}

/** Units that were spent in one operation. */
export interface Charge {
  readonly policy: string;
  readonly key: Key;
  readonly units: number;
  /** The number of guards that rely on these units. When none of them counts the request, the units are refunded. */
  claims: number;
}

/**
 * The value of `rateLimit` on a request. It carries the outcomes of earlier guards too, because reading another property of
 * Express's request takes longer than a decision.
 */
export class DecidedRateLimit implements RateLimit {
  readonly policy: string;
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  readonly retryAfterMs: number | null;
  readonly resetAfterMs: number;
  readonly delayMs: number;
  readonly source: Source;
  readonly degraded: Degradation | null;
  readonly quotas: readonly QuotaUsage[];
  readonly all: readonly { readonly policy: string; readonly decision: Decision }[];
  readonly #outcomes: readonly ChargedOutcome[];

  /** `previous` is the `rateLimit` of the guard before, if there was one. */
  constructor(outcomes: readonly ChargedOutcome[], previous: unknown) {
    const { policy, decision } = strictest(outcomes);
    this.policy = policy;
    this.allowed = decision.allowed;
    this.limit = decision.limit;
    this.remaining = decision.remaining;
    this.retryAfterMs = decision.retryAfterMs;
    this.resetAfterMs = decision.resetAfterMs;
    this.delayMs = decision.delayMs;
    this.source = decision.source;
    this.degraded = decision.degraded;
    this.quotas = decision.quotas;
    this.all = outcomes.map(({ policy, decision }) => ({ policy, decision }));
    this.#outcomes = previous === undefined ? outcomes : merge(outcomesOf(previous), outcomes);
  }

  /** The outcomes of all guards so far; each policy has one, the newest. */
  get outcomes(): readonly ChargedOutcome[] {
    return this.#outcomes;
  }
}

const NO_OUTCOMES: readonly ChargedOutcome[] = [];

/** The outcomes of earlier guards. */
export function outcomesOf(previous: unknown): readonly ChargedOutcome[] {
  return previous instanceof DecidedRateLimit ? previous.outcomes : NO_OUTCOMES;
}

function merge(previous: readonly ChargedOutcome[], outcomes: readonly ChargedOutcome[]): readonly ChargedOutcome[] {
  const isReplaced = (one: Outcome) =>
    outcomes.some(({ limiter, policy }) => policy === one.policy && limiter === one.limiter);
  return [...previous.filter((one) => !isReplaced(one)), ...outcomes];
}

/** The first denial; without one, the decision with the fewest remaining units. */
function strictest(outcomes: readonly Outcome[]): Outcome {
  let found = outcomes[0];
  for (const one of outcomes) {
    if (!found.decision.allowed) break;
    if (!one.decision.allowed || one.decision.remaining < found.decision.remaining) found = one;
  }
  return found;
}

/** The outcome under which this key was already charged to this policy. */
export function findCharged(
  outcomes: readonly ChargedOutcome[],
  limiter: Limiter,
  policy: string,
  key: Key,
): ChargedOutcome | undefined {
  return outcomes.find(
    (one) => one.policy === policy && one.limiter === limiter && one.decision.allowed && isSameKey(one.key, key),
  );
}

function isSameKey(one: Key, other: Key): boolean {
  return one === other || Buffer.compare(keyBytes(one), keyBytes(other)) === 0;
}

function keyBytes(key: Key): Uint8Array {
  const text = keyOf(key);
  return typeof text === "string" ? Buffer.from(text) : text;
}
