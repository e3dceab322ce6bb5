/** What every framework's middleware does with a request, whatever the framework. */

import { Field } from "../addon";
import { invalidArgument } from "../argument";
import { ClientAddressRules } from "../client_address";
import { type Decision, readDecision, readDecisions } from "../decision";
import { fields, later } from "../exchange";
import { failure } from "../failure";
import { type HeaderFields, type Outcome, problem, type Refusal, Responder, refusal } from "../headers";
import type { Key } from "../key";
import { askCheck, askTogether, type Limiter } from "../limiter";
import { Decided } from "./decided";
import { isPromise, type MaybePromise } from "./maybe_promise";
import type { RateLimit, RateLimitOptions } from "./options";

/** RFC 6585, section 4: any other status of a denial tells of an outage. */
const TOO_MANY_REQUESTS = 429;

/** What was decided about a request, and what its response says of it. */
export interface Verdict<Denied> {
  readonly rateLimit: RateLimit;
  readonly fields: HeaderFields;
  /** What to answer; `undefined` when the request is admitted. */
  readonly refusal: Refusal | undefined;
  /** Answers in its place, if somebody wants to. */
  readonly instead: (() => Denied) | undefined;
  /** What was spent on whom. */
  readonly key: Key;
  readonly cost: number | undefined;
}

/** What a framework tells of a request. */
export interface Framework<Context extends unknown[]> {
  /** The client, by rules if somebody gave any. */
  readonly clientOf: (rules: ClientAddressRules | undefined, ...context: Context) => Key;
  /** The `Accept` field. */
  readonly acceptOf: (...context: Context) => string | undefined;
}

export class Guard<Context extends unknown[], Finished extends unknown[], Denied> {
  readonly #options: RateLimitOptions<Context, Finished, Denied>;
  readonly #policies: readonly string[];
  readonly #responder: Responder;
  readonly #framework: Framework<Context>;
  readonly #rules: ClientAddressRules | undefined;

  constructor(options: RateLimitOptions<Context, Finished, Denied>, framework: Framework<Context>) {
    const { limiter, policy, clientAddress } = options;
    this.#options = options;
    this.#policies = policy === undefined ? [onlyPolicy(limiter)] : [policy].flat();
    this.#responder = new Responder(limiter, this.#policies[0], options);
    this.#framework = framework;
    this.#rules =
      clientAddress === undefined || clientAddress instanceof ClientAddressRules
        ? clientAddress
        : new ClientAddressRules(clientAddress);
  }

  /**
   * Decides about a request; `undefined` when it is skipped. Nothing is waited for where the answer is known at once.
   * `before` is what a guard before this one told the request's handlers.
   */
  decide(before: unknown, context: Context): MaybePromise<Verdict<Denied> | undefined> {
    const { skip } = this.#options;
    if (skip === undefined) return this.#count(before, context);
    const skipped = skip(...context);
    if (isPromise(skipped)) return skipped.then((known) => (known ? undefined : this.#count(before, context)));
    return skipped ? undefined : this.#count(before, context);
  }

  /**
   * Gives back what the request has spent if its response does not count: under every policy, also when it fails under one of
   * them. It counts when `count` fails.
   */
  async finish({ key, cost }: Verdict<Denied>, ...finished: Finished): Promise<void> {
    const { count, limiter } = this.#options;
    if (typeof count !== "function") return;
    try {
      if (await count(...finished)) return;
    } catch (error) {
      tell(error);
      return;
    }
    const refunds = this.#policies.map((policy) => limiter.refund(key, { policy, cost }));
    for (const refund of await Promise.allSettled(refunds)) if (refund.status === "rejected") tell(refund.reason);
  }

  /** Whether anybody wants to know how responses end. */
  get waitsForResponse(): boolean {
    return typeof this.#options.count === "function";
  }

  #count(before: unknown, context: Context): MaybePromise<Verdict<Denied>> {
    const { key } = this.#options;
    const whom = key === undefined ? this.#framework.clientOf(this.#rules, ...context) : key(...context);
    if (isPromise(whom)) return whom.then((known) => this.#charge(before, context, known));
    return this.#charge(before, context, whom);
  }

  #charge(before: unknown, context: Context, key: Key): MaybePromise<Verdict<Denied>> {
    const { cost } = this.#options;
    const units = typeof cost === "function" ? cost(...context) : cost;
    if (isPromise(units)) return units.then((known) => this.#ask(before, context, key, known));
    return this.#ask(before, context, key, units);
  }

  #ask(before: unknown, context: Context, key: Key, cost: number | undefined): MaybePromise<Verdict<Denied>> {
    const { limiter } = this.#options;
    if (this.#policies.length === 1) askCheck(limiter, key, this.#policies[0], cost);
    else askTogether(limiter, key, this.#policies, cost);
    if (fields[Field.Ticket] === 0) return this.#verdict(before, context, key, cost);
    // It is read where it arrives: by the time that somebody has waited for it, another answer stands there.
    return later(() => this.#verdict(before, context, key, cost));
  }

  /** What the answer that has just arrived means. */
  #verdict(before: unknown, context: Context, key: Key, cost: number | undefined): Verdict<Denied> {
    const { limiter } = this.#options;
    const decisions = this.#policies.length === 1 ? [readDecision()] : (readDecisions() as Decision[]);
    const outcomes: Outcome[] = [];
    for (let at = 0; at < decisions.length; at++) {
      outcomes.push({ limiter, policy: this.#policies[at], decision: decisions[at] });
    }
    const rateLimit = new Decided(outcomes, before);
    const all = rateLimit.outcomes;
    try {
      const told = all.length === 1 ? this.#responder.fieldsOfNewest() : this.#responder.fieldsOf(all);
      if (rateLimit.allowed) return { rateLimit, fields: told, refusal: undefined, instead: undefined, key, cost };
      const refused = refusal(cost ?? 1, this.#framework.acceptOf(...context));
      const instead = this.#instead(rateLimit, told, refused.status, cost ?? 1, context);
      return { rateLimit, fields: told, refusal: refused, instead, key, cost };
    } catch (thrown) {
      throw failure(thrown);
    }
  }

  #instead(
    rateLimit: RateLimit,
    told: HeaderFields,
    status: number,
    cost: number,
    context: Context,
  ): (() => Denied) | undefined {
    const { onDenied, onOutage } = this.#options;
    const handler = status === TOO_MANY_REQUESTS ? onDenied : onOutage;
    if (handler === undefined) return undefined;
    const denial = { rateLimit, status, problem: problem(cost), fields: told };
    return () => handler(denial, ...context);
  }
}

/** The response is on its way: there is nobody else to tell. */
function tell(error: unknown): void {
  process.emitWarning(error instanceof Error ? error : String(error));
}

function onlyPolicy(limiter: Limiter): string {
  const names = limiter.policies.map(({ name }) => name);
  if (names.length === 1) return names[0];
  throw invalidArgument(
    `policy is missing, and this limiter has ${names.length}: name one, or quotas such as "100/minute"`,
  );
}
