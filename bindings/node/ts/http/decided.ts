/** What was decided about a request, for its handlers and for the guards after. */

import type { Decision, QuotaUsage } from "../decision";
import type { Outcome } from "../headers";
import type { Degradation, Source } from "../tables";
import type { Counted } from "./counted";
import type { RateLimit } from "./options";

/**
 * What handlers are told. It knows what other guards have decided before: a request has no other place for that, for each
 * property that Express's have to get takes longer than deciding.
 */
export class Decided implements RateLimit {
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
  /** With those of guards before; each policy has one, the newest. */
  readonly #outcomes: readonly Counted[];

  /** `before` is what the guard before told, if there was one. */
  constructor(outcomes: readonly Counted[], before: unknown) {
    const { policy, decision } = mostTelling(outcomes);
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
    this.#outcomes = before === undefined ? outcomes : together(outcomesOf(before), outcomes);
  }

  /** All that was decided about the request so far. */
  get outcomes(): readonly Counted[] {
    return this.#outcomes;
  }
}

/** What guards before have decided. */
export function outcomesOf(before: unknown): readonly Counted[] {
  return before instanceof Decided ? before.outcomes : NONE;
}

const NONE: readonly Counted[] = [];

function together(before: readonly Counted[], outcomes: readonly Counted[]): readonly Counted[] {
  const isNewer = (one: Outcome) =>
    outcomes.some(({ limiter, policy }) => policy === one.policy && limiter === one.limiter);
  return [...before.filter((one) => !isNewer(one)), ...outcomes];
}

/** The first denial, or else what has the least left. */
function mostTelling(outcomes: readonly Outcome[]): Outcome {
  let telling = outcomes[0];
  for (const one of outcomes) {
    if (!telling.decision.allowed) break;
    if (!one.decision.allowed || one.decision.remaining < telling.decision.remaining) telling = one;
  }
  return telling;
}
