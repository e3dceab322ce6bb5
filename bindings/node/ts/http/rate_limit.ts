/** The limits of one request: as its handlers see them, and as later guards on its way need them. */

import type { NativeCheck } from "../addon";
import type { Key } from "../arguments";
import type { Decision, QuotaVerdict } from "../decision";
import type { HeaderFields } from "../headers";
import type { Cause, Degradation, Source } from "../tables";
import type { RateLimit } from "./options";

/** A policy's name and its decision. */
export interface Outcome {
  readonly policy: string;
  readonly decision: Decision;
}

/** What was decided about. */
export interface DecidedRequest {
  readonly key: Key | undefined;
  readonly units: number | undefined;
  readonly route: string | undefined;
}

/** A guard that can restore the check of a request that it has admitted with one decision. */
export interface RestoringGuard {
  restore(request: DecidedRequest, outcome: Outcome, earlier: NativeCheck | undefined): NativeCheck;
}

/**
 * What the guards of one request share. Most requests need no object of the addon: the next guard finds the check as the
 * addon's newest one, or has it restored from the decisions if another request was decided in between.
 */
export class RequestState {
  /** The fields that the response has so far. */
  fields: HeaderFields = NONE;
  /** What the guards still do with the status of the response. */
  finishing: PromiseLike<unknown> | undefined = undefined;
  /** The number of the newest check. */
  private number = 0;
  /** The newest check, from the first one on that is kept. */
  private kept: NativeCheck | undefined = undefined;
  /** The guards that have admitted the request, while no check is kept. */
  private admissions: readonly Admission[] = NO_ADMISSIONS;

  /** Takes the check of a guard; `undefined` when it can be restored from what the guard has decided. */
  add(number: number, check: NativeCheck | undefined, admission: Admission | undefined): void {
    this.number = number;
    this.kept = check ?? this.kept;
    if (this.kept !== undefined || admission === undefined) return;
    this.admissions = this.admissions === NO_ADMISSIONS ? [admission] : [...this.admissions, admission];
  }

  /** Whether the next checks must be kept as well. */
  get keeps(): boolean {
    return this.kept !== undefined;
  }

  /** A check of the request, all of which share its limits; `undefined` when it is the newest one of the addon. */
  checkUnlessNewest(newest: number): NativeCheck | undefined {
    if (this.kept === undefined && this.number !== newest) {
      for (const { guard, request, outcome } of this.admissions) {
        this.kept = guard.restore(request, outcome, this.kept);
      }
    }
    return this.kept;
  }
}

/** A request that a guard has admitted with one decision. */
interface Admission {
  readonly guard: RestoringGuard;
  readonly request: DecidedRequest;
  readonly outcome: Outcome;
}

const NONE: HeaderFields = [];
const NO_ADMISSIONS: readonly Admission[] = [];

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
  readonly retryAfterUs: number | null;
  readonly resetAfterMs: number;
  readonly over: number;
  readonly delayMs: number;
  readonly delayUs: number;
  readonly cause: Cause | null;
  readonly crossed: boolean;
  readonly elastic: boolean;
  readonly shadowed: boolean;
  readonly source: Source;
  readonly degraded: Degradation | null;
  readonly quotas: readonly QuotaVerdict[];
  readonly all: readonly Outcome[];
  readonly #state: RequestState;

  constructor(outcomes: readonly Outcome[], state: RequestState) {
    const { policy, decision } = strictest(outcomes);
    this.policy = policy;
    this.allowed = decision.allowed;
    this.limit = decision.limit;
    this.remaining = decision.remaining;
    this.retryAfterMs = decision.retryAfterMs;
    this.retryAfterUs = decision.retryAfterUs;
    this.resetAfterMs = decision.resetAfterMs;
    this.over = decision.over;
    this.delayMs = decision.delayMs;
    this.delayUs = decision.delayUs;
    this.cause = decision.cause;
    this.crossed = decision.crossed;
    this.elastic = decision.elastic;
    this.shadowed = decision.shadowed;
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
