/** What was decided about a request, for its handlers and for the guards after. */

import type { Decision, QuotaUsage } from "../decision";
import type { Outcome } from "../headers";
import type { Degradation, Source } from "../tables";
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
  readonly #outcomes: readonly Outcome[];

  /** `before` is what the guard before told, if there was one. */
  constructor(outcomes: readonly Outcome[], before: unknown) {
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
    this.#outcomes = before === undefined ? outcomes : together(Decided.#outcomesOf(before), outcomes);
  }

  /** All that was decided about the request so far. */
  get outcomes(): readonly Outcome[] {
    return this.#outcomes;
  }

  static #outcomesOf(before: unknown): readonly Outcome[] {
    return before instanceof Decided ? before.#outcomes : [];
  }
}

function together(before: readonly Outcome[], outcomes: readonly Outcome[]): readonly Outcome[] {
  const others = before.filter(({ policy }) => !outcomes.some((outcome) => outcome.policy === policy));
  return [...others, ...outcomes];
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
