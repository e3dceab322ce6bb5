/** The limits of one request: as its handlers see them, and as later guards on its way need them. */

import type { NativeCheck } from "../addon";
import type { Decision, QuotaUsage } from "../decision";
import type { HeaderFields } from "../headers";
import type { Degradation, Source } from "../tables";
import type { RateLimit } from "./options";

/** A policy's name and its decision. */
export interface Outcome {
  readonly policy: string;
  readonly decision: Decision;
}

/** What the guards of one request share. */
export class RequestState {
  /** The fields that the response has so far. */
  fields: HeaderFields = [];
  readonly #check: () => NativeCheck;
  #kept: NativeCheck | undefined;

  /** `check` returns a check of the request; it is called only if another guard needs it. */
  constructor(check: () => NativeCheck) {
    this.#check = check;
  }

  /** A check of the request. All checks of a request share its limits. */
  get check(): NativeCheck {
    this.#kept ??= this.#check();
    return this.#kept;
  }
}

/**
 * The value of `rateLimit` on a request. It carries the state of the request too, because reading another property of
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
  readonly all: readonly Outcome[];
  readonly #state: RequestState;

  constructor(outcomes: readonly Outcome[], state: RequestState) {
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
    this.all = outcomes;
    this.#state = state;
  }

  get state(): RequestState {
    return this.#state;
  }
}

/** The states of requests that were admitted without any decision. */
const undecided = new WeakMap<object, RequestState>();
let hasUndecided = false;

/** The state of a request that an earlier guard has met; `rateLimit` is what that guard has set on the request. */
export function stateOf(request: object, rateLimit: unknown): RequestState | undefined {
  if (rateLimit instanceof DecidedRateLimit) return rateLimit.state;
  return hasUndecided ? undecided.get(request) : undefined;
}

/** Keeps the state of a request that has no decision. */
export function keepState(request: object, state: RequestState): void {
  hasUndecided = true;
  undecided.set(request, state);
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
