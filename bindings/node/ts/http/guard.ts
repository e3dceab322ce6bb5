/** What every framework's middleware does with a request, whatever the framework. */

import { createHash } from "node:crypto";

import { Field } from "../addon";
import { excerpt, invalidArgument, number } from "../argument";
import { ClientAddressRules } from "../client_address";
import { type Decision, readDecision, readDecisions } from "../decision";
import { fields, later } from "../exchange";
import { failure } from "../failure";
import { type HeaderFields, problem, type Refusal, Responder, refusal } from "../headers";
import type { Key } from "../key";
import { askCheck, askTogether } from "../limiter";
import { type Charge, type Counted, countedBefore } from "./counted";
import { Decided, outcomesOf } from "./decided";
import { isPromise, type MaybePromise } from "./maybe_promise";
import { checkCost, type RateLimit, type RateLimitOptions } from "./options";

/** RFC 6585, section 4: any other status of a denial tells of an outage. */
const TOO_MANY_REQUESTS = 429;

/** What was decided about a request, and what its response says of it. */
export interface Verdict<Denied> {
  readonly rateLimit: RateLimit;
  readonly fields: HeaderFields;
  /** What to answer; `undefined` when the request is admitted. */
  readonly refusal: Refusal | undefined;
  /** Answers in its place, if the options say how. */
  readonly instead: (() => Denied) | undefined;
  /** What the request has spent here, or before and is counted on here. */
  readonly charges: readonly Charge[];
}

/** What a framework tells of a request. */
export interface Framework<Context extends unknown[]> {
  /** The client, by the rules if there are any. */
  readonly clientOf: (rules: ClientAddressRules | undefined, ...context: Context) => Key;
  /** The `Accept` field. */
  readonly acceptOf: (...context: Context) => string | undefined;
  /** The route that the guard stands at, the same text in every process; `undefined` for a guard before all routes. */
  readonly routeOf?: (...context: Context) => string | undefined;
}

/** The policies by their own names, and what writes of them. */
interface Applied {
  readonly policies: readonly string[];
  readonly responder: Responder;
}

/** What is asked: a policy that was counted before is asked for what it lacks, if it lacks anything. */
interface Question {
  readonly policy: string;
  readonly before: Counted | undefined;
  /** What is to be spent now; `undefined` is what a check spends unless told otherwise. */
  readonly cost: number | undefined;
  readonly isAsked: boolean;
}

/** The longest text that is a scope, in bytes. */
const LONGEST_SCOPE = 256;

export class Guard<Context extends unknown[], Finished extends unknown[], Denied> {
  readonly #options: RateLimitOptions<Context, Finished, Denied>;
  readonly #framework: Framework<Context>;
  readonly #rules: ClientAddressRules | undefined;
  /** Without a route. */
  readonly #everywhere: Applied;
  /** On each route, if there are quotas without a name, which belong to it. */
  readonly #onRoutes: Map<string, Applied> | undefined;

  constructor(options: RateLimitOptions<Context, Finished, Denied>, framework: Framework<Context>) {
    const { policy, scope, clientAddress } = options;
    this.#options = options;
    this.#framework = framework;
    this.#everywhere = this.#applied(scope);
    const given = [policy].flat();
    const haveNames = this.#everywhere.policies.every((name, at) => given[at] === undefined || given[at] === name);
    this.#onRoutes = haveNames || scope !== undefined || framework.routeOf === undefined ? undefined : new Map();
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
   * them. It counts when `count` fails, and where another guard counts it.
   */
  async finish({ charges }: Verdict<Denied>, ...finished: Finished): Promise<void> {
    const { count, limiter } = this.#options;
    if (typeof count !== "function") return;
    try {
      if (await count(...finished)) return;
    } catch (error) {
      tell(error);
      return;
    }
    const unwanted = charges.filter((charge) => {
      charge.claims -= 1;
      return charge.claims === 0;
    });
    const refunds = unwanted.map(({ key, policy, units }) => limiter.refund(key, { policy, cost: units }));
    for (const refund of await Promise.allSettled(refunds)) if (refund.status === "rejected") tell(refund.reason);
  }

  /** Whether it depends on their responses which requests count. */
  get waitsForResponse(): boolean {
    return typeof this.#options.count === "function";
  }

  /** The policies in a scope, as the limiter names them. */
  #applied(scope: string | undefined): Applied {
    const { limiter, policy } = this.#options;
    const policies = [policy].flat().map((one) => limiter.policyFor(one, scope).name);
    const twice = policies.find((name, at) => policies.indexOf(name) !== at);
    if (twice !== undefined) throw invalidArgument(`policy ${excerpt(twice)} is given twice: once is enough`);
    return { policies, responder: new Responder(limiter, policies[0], this.#options) };
  }

  #appliedTo(context: Context): Applied {
    const route = this.#onRoutes && this.#framework.routeOf?.(...context);
    if (this.#onRoutes === undefined || route === undefined) return this.#everywhere;
    let applied = this.#onRoutes.get(route);
    if (applied === undefined) {
      const isLong = Buffer.byteLength(route) > LONGEST_SCOPE;
      applied = this.#applied(isLong ? createHash("sha256").update(route).digest("hex") : route);
      this.#onRoutes.set(route, applied);
    }
    return applied;
  }

  #count(before: unknown, context: Context): MaybePromise<Verdict<Denied>> {
    const { key } = this.#options;
    const whom = key?.(...context);
    if (isPromise(whom)) return whom.then((known) => this.#charge(before, context, known));
    return this.#charge(before, context, whom);
  }

  #charge(before: unknown, context: Context, whom: Key | null | undefined): MaybePromise<Verdict<Denied>> {
    const { cost } = this.#options;
    const key = whom ?? this.#framework.clientOf(this.#rules, ...context);
    const units = typeof cost === "function" ? cost(...context) : cost;
    if (isPromise(units)) return units.then((known) => this.#ask(before, context, key, known));
    return this.#ask(before, context, key, units);
  }

  #ask(before: unknown, context: Context, key: Key, cost: number | undefined): MaybePromise<Verdict<Denied>> {
    const { limiter } = this.#options;
    const applied = this.#appliedTo(context);
    const questions = this.#questions(outcomesOf(before), applied, key, cost);
    const asked = questions.filter(({ isAsked }) => isAsked);
    if (asked.length === 1) askCheck(limiter, key, asked[0].policy, asked[0].cost);
    else if (asked.length > 1) {
      askTogether(
        limiter,
        asked.map(({ policy, cost }) => ({ key, policy, cost })),
      );
    }
    const verdict = () => {
      const decisions =
        asked.length === 0 ? [] : asked.length === 1 ? [readDecision()] : (readDecisions() as Decision[]);
      return this.#verdict(before, context, applied, key, cost, questions, decisions);
    };
    // It is read where it arrives: by the time that a caller has waited for it, another answer stands there.
    return asked.length === 0 || fields[Field.Ticket] === 0 ? verdict() : later(verdict);
  }

  #questions(outcomes: readonly Counted[], { policies }: Applied, key: Key, cost: number | undefined): Question[] {
    const { limiter } = this.#options;
    return policies.map((policy) => {
      const before = outcomes.length === 0 ? undefined : countedBefore(outcomes, limiter, policy, key);
      if (before === undefined) return { policy, before, cost, isAsked: true };
      const units = number("cost", cost ?? 1, "a number of units");
      checkCost(units);
      return { policy, before, cost: units - before.units, isAsked: units > before.units };
    });
  }

  /** What the answers that have just arrived mean. */
  #verdict(
    before: unknown,
    context: Context,
    { responder }: Applied,
    key: Key,
    cost: number | undefined,
    questions: readonly Question[],
    decisions: readonly Decision[],
  ): Verdict<Denied> {
    const { limiter } = this.#options;
    const outcomes: Counted[] = [];
    const charges: Charge[] = [];
    let next = 0;
    for (const { policy, before, cost: units = 1, isAsked } of questions) {
      const own = isAsked ? [{ policy, key, units, claims: 0 }] : NO_CHARGES;
      const all = before === undefined ? own : [...before.charges, ...own];
      charges.push(...all);
      const decision = isAsked ? decisions[next++] : (before as Counted).decision;
      outcomes.push({
        limiter,
        policy,
        decision,
        key,
        units: isAsked ? (cost ?? 1) : (before as Counted).units,
        charges: all,
      });
    }
    const rateLimit = new Decided(outcomes, before);
    const all = rateLimit.outcomes;
    try {
      const told = all.length === 1 && decisions.length === 1 ? responder.fieldsOfNewest() : responder.fieldsOf(all);
      if (rateLimit.allowed) {
        for (const charge of charges) charge.claims += 1;
        return { rateLimit, fields: told, refusal: undefined, instead: undefined, charges };
      }
      const refused = refusal(cost ?? 1, this.#framework.acceptOf(...context));
      const instead = this.#instead(rateLimit, told, refused.status, cost ?? 1, context);
      return { rateLimit, fields: told, refusal: refused, instead, charges: NO_CHARGES };
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

/** The response is on its way, so that only the process can be told. */
function tell(error: unknown): void {
  try {
    process.emitWarning(error as Error);
  } catch {
    // What is no error of the main context's realm is none to it.
    process.emitWarning(String(error));
  }
}

const NO_CHARGES: readonly Charge[] = [];
