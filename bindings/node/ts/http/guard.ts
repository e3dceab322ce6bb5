/** The guard: what the middleware of every framework does with a request. */

import { createHash } from "node:crypto";

import { Field } from "../addon";
import { excerpt, type Key, number } from "../arguments";
import { ClientAddressRules } from "../client_address";
import { type Decision, readDecision, readDecisions } from "../decision";
import { invalidArgument, toPublicError } from "../errors";
import { fields, pendingAnswer } from "../exchange";
import { type DenialResponse, denialResponse, type HeaderFields, HeaderWriter, problem } from "../headers";
import { submitCheck, submitTogether } from "../limiter";
import { checkCost, isPromise, type MaybePromise, type RateLimit, type RateLimitOptions } from "./options";
import { type Charge, type ChargedOutcome, DecidedRateLimit, findCharged, outcomesOf } from "./rate_limit";

/** The status of a denial by a quota (RFC 6585, section 4). A denial because of an outage has another one. */
const TOO_MANY_REQUESTS = 429;

/** The decision about a request, and what the adapter has to do. */
export interface GuardResult<Denied> {
  readonly rateLimit: RateLimit;
  readonly fields: HeaderFields;
  /** The response to a denied request; `undefined` when the request is admitted. */
  readonly denial: DenialResponse | undefined;
  /** Calls the handler of the options that responds in place of `denial`, if there is one. */
  readonly handleDenial: (() => Denied) | undefined;
  /** The units that this guard relies on: those that it has spent, and those of earlier guards that it reuses. */
  readonly charges: readonly Charge[];
}

/** How a framework's request is read. */
export interface FrameworkAdapter<Context extends unknown[]> {
  /** The key of the client, found by the rules if there are any. */
  readonly clientOf: (rules: ClientAddressRules | undefined, ...context: Context) => Key;
  /** The `Accept` field. */
  readonly acceptOf: (...context: Context) => string | undefined;
  /** The route of the guard, as the same text in every process; `undefined` for a guard before all routes. */
  readonly routeOf?: (...context: Context) => string | undefined;
}

/** The names of the policies in one scope, and the writer of their header fields. */
interface ResolvedPolicies {
  readonly policies: readonly string[];
  readonly headerWriter: HeaderWriter;
}

/** One policy's part in the decision. If an earlier guard has charged the policy, only the difference in cost is charged. */
interface PolicyCheck {
  readonly policy: string;
  /** The outcome of an earlier guard. */
  readonly earlier: ChargedOutcome | undefined;
  /** The units to spend now; `undefined` is the default of a check. */
  readonly cost: number | undefined;
  /** Whether a check is needed; otherwise the earlier outcome holds. */
  readonly isNeeded: boolean;
}

/** The longest scope, in bytes. A longer route is hashed. */
const MAX_SCOPE_BYTES = 256;

export class Guard<Context extends unknown[], Finished extends unknown[], Denied> {
  readonly #options: RateLimitOptions<Context, Finished, Denied>;
  readonly #framework: FrameworkAdapter<Context>;
  readonly #rules: ClientAddressRules | undefined;
  /** The policies of requests without a route. */
  readonly #everywhere: ResolvedPolicies;
  /** The policies by route; `undefined` when all policies have names, which are the same on every route. */
  readonly #onRoutes: Map<string, ResolvedPolicies> | undefined;

  constructor(options: RateLimitOptions<Context, Finished, Denied>, framework: FrameworkAdapter<Context>) {
    const { policy, scope, clientAddress } = options;
    this.#options = options;
    this.#framework = framework;
    this.#everywhere = this.#resolve(scope);
    const given = [policy].flat();
    const haveNames = this.#everywhere.policies.every((name, at) => given[at] === undefined || given[at] === name);
    this.#onRoutes = haveNames || scope !== undefined || framework.routeOf === undefined ? undefined : new Map();
    this.#rules =
      clientAddress === undefined || clientAddress instanceof ClientAddressRules
        ? clientAddress
        : new ClientAddressRules(clientAddress);
  }

  /**
   * Decides about a request; `undefined` when it is skipped. It returns a promise only where something must be awaited.
   * `previous` is the `rateLimit` that an earlier guard has set on the request.
   */
  decide(previous: unknown, context: Context): MaybePromise<GuardResult<Denied> | undefined> {
    const { skip } = this.#options;
    if (skip === undefined) return this.#findKey(previous, context);
    const isSkipped = skip(...context);
    if (isPromise(isSkipped)) return isSkipped.then((value) => (value ? undefined : this.#findKey(previous, context)));
    return isSkipped ? undefined : this.#findKey(previous, context);
  }

  /**
   * Refunds the units of a request whose response does not count, under every policy, even if one of the refunds fails. The
   * request counts if `count` fails. Units that another guard relies on are not refunded.
   */
  async finish({ charges }: GuardResult<Denied>, ...finished: Finished): Promise<void> {
    const { count, limiter } = this.#options;
    if (typeof count !== "function") return;
    try {
      if (await count(...finished)) return;
    } catch (error) {
      warn(error);
      return;
    }
    const unclaimed = charges.filter((charge) => {
      charge.claims -= 1;
      return charge.claims === 0;
    });
    const refunds = unclaimed.map(({ key, policy, units }) => limiter.refund(key, { policy, cost: units }));
    for (const refund of await Promise.allSettled(refunds)) if (refund.status === "rejected") warn(refund.reason);
  }

  /** Whether `finish` must be called when a response has ended. */
  get waitsForResponse(): boolean {
    return typeof this.#options.count === "function";
  }

  /** Finds the policies in a scope. */
  #resolve(scope: string | undefined): ResolvedPolicies {
    const { limiter, policy } = this.#options;
    const policies = [policy].flat().map((one) => limiter.policyFor(one, scope).name);
    const duplicate = policies.find((name, at) => policies.indexOf(name) !== at);
    if (duplicate !== undefined) throw invalidArgument(`policy ${excerpt(duplicate)} is given twice: once is enough`);
    return { policies, headerWriter: new HeaderWriter(limiter, policies[0], this.#options) };
  }

  #policiesFor(context: Context): ResolvedPolicies {
    const route = this.#onRoutes && this.#framework.routeOf?.(...context);
    if (this.#onRoutes === undefined || route === undefined) return this.#everywhere;
    let resolved = this.#onRoutes.get(route);
    if (resolved === undefined) {
      const isLong = Buffer.byteLength(route) > MAX_SCOPE_BYTES;
      resolved = this.#resolve(isLong ? createHash("sha256").update(route).digest("hex") : route);
      this.#onRoutes.set(route, resolved);
    }
    return resolved;
  }

  #findKey(previous: unknown, context: Context): MaybePromise<GuardResult<Denied>> {
    const { key } = this.#options;
    const given = key?.(...context);
    if (isPromise(given)) return given.then((value) => this.#findCost(previous, context, value));
    return this.#findCost(previous, context, given);
  }

  #findCost(previous: unknown, context: Context, given: Key | null | undefined): MaybePromise<GuardResult<Denied>> {
    const { cost } = this.#options;
    const key = given ?? this.#framework.clientOf(this.#rules, ...context);
    const units = typeof cost === "function" ? cost(...context) : cost;
    if (isPromise(units)) return units.then((value) => this.#check(previous, context, key, value));
    return this.#check(previous, context, key, units);
  }

  #check(previous: unknown, context: Context, key: Key, cost: number | undefined): MaybePromise<GuardResult<Denied>> {
    const { limiter } = this.#options;
    const resolved = this.#policiesFor(context);
    const checks = this.#planChecks(outcomesOf(previous), resolved, key, cost);
    const needed = checks.filter(({ isNeeded }) => isNeeded);
    if (needed.length === 1) submitCheck(limiter, key, needed[0].policy, needed[0].cost);
    else if (needed.length > 1) {
      submitTogether(
        limiter,
        needed.map(({ policy, cost }) => ({ key, policy, cost })),
      );
    }
    const result = () => {
      const decisions =
        needed.length === 0 ? [] : needed.length === 1 ? [readDecision()] : (readDecisions() as Decision[]);
      return this.#result(previous, context, resolved, key, cost, checks, decisions);
    };
    // `result` reads the shared arrays, so that it must run as soon as the answer is there, before another one replaces it.
    return needed.length === 0 || fields[Field.Ticket] === 0 ? result() : pendingAnswer(result);
  }

  #planChecks(
    outcomes: readonly ChargedOutcome[],
    { policies }: ResolvedPolicies,
    key: Key,
    cost: number | undefined,
  ): PolicyCheck[] {
    const { limiter } = this.#options;
    return policies.map((policy) => {
      const earlier = outcomes.length === 0 ? undefined : findCharged(outcomes, limiter, policy, key);
      if (earlier === undefined) return { policy, earlier, cost, isNeeded: true };
      const units = number("cost", cost ?? 1, "a number of units");
      checkCost(units);
      return { policy, earlier, cost: units - earlier.units, isNeeded: units > earlier.units };
    });
  }

  /** Combines the decisions that have just arrived with the outcomes of earlier guards. */
  #result(
    previous: unknown,
    context: Context,
    { headerWriter }: ResolvedPolicies,
    key: Key,
    cost: number | undefined,
    checks: readonly PolicyCheck[],
    decisions: readonly Decision[],
  ): GuardResult<Denied> {
    const { limiter } = this.#options;
    const outcomes: ChargedOutcome[] = [];
    const charges: Charge[] = [];
    let next = 0;
    for (const { policy, earlier, cost: units = 1, isNeeded } of checks) {
      const own = isNeeded ? [{ policy, key, units, claims: 0 }] : NO_CHARGES;
      const all = earlier === undefined ? own : [...earlier.charges, ...own];
      charges.push(...all);
      const decision = isNeeded ? decisions[next++] : (earlier as ChargedOutcome).decision;
      outcomes.push({
        limiter,
        policy,
        decision,
        key,
        units: isNeeded ? (cost ?? 1) : (earlier as ChargedOutcome).units,
        charges: all,
      });
    }
    const rateLimit = new DecidedRateLimit(outcomes, previous);
    const all = rateLimit.outcomes;
    try {
      const isSimple = all.length === 1 && decisions.length === 1;
      const headers = isSimple ? headerWriter.fieldsOfNewestDecision() : headerWriter.fieldsOf(all);
      if (rateLimit.allowed) {
        for (const charge of charges) charge.claims += 1;
        return { rateLimit, fields: headers, denial: undefined, handleDenial: undefined, charges };
      }
      const denial = denialResponse(cost ?? 1, this.#framework.acceptOf(...context));
      const handleDenial = this.#denialHandler(rateLimit, headers, denial.status, cost ?? 1, context);
      return { rateLimit, fields: headers, denial, handleDenial, charges: NO_CHARGES };
    } catch (thrown) {
      throw toPublicError(thrown);
    }
  }

  #denialHandler(
    rateLimit: RateLimit,
    headers: HeaderFields,
    status: number,
    cost: number,
    context: Context,
  ): (() => Denied) | undefined {
    const { onDenied, onOutage } = this.#options;
    const handler = status === TOO_MANY_REQUESTS ? onDenied : onOutage;
    if (handler === undefined) return undefined;
    const denial = { rateLimit, status, problem: problem(cost), fields: headers };
    return () => handler(denial, ...context);
  }
}

/** Emits an error as a warning of the process: the response has ended, so that no caller is left to receive it. */
function warn(error: unknown): void {
  try {
    process.emitWarning(error as Error);
  } catch {
    // The process accepts only instances of its own realm's `Error`, and strings.
    process.emitWarning(String(error));
  }
}

const NO_CHARGES: readonly Charge[] = [];
