/** What every framework's middleware does with a request, whatever the framework. */

import { invalidArgument } from "../argument";
import { ClientAddressRules } from "../client_address";
import type { Decision } from "../decision";
import { PolylimitError } from "../failure";
import { type HeaderFields, type Outcome, type Problem, responder } from "../headers";
import type { Key, Limiter } from "../limiter";
import type { OutageEvent, RateLimit, RateLimitOptions } from "./options";

/** What was decided about a request, and what its response says of it. */
export interface Verdict {
  readonly rateLimit: RateLimit | undefined;
  readonly fields: HeaderFields;
  /** Why the request is denied; `undefined` when it is not. */
  readonly problem: Problem | undefined;
  /** Gives back what the request has spent, once its response turns out not to count. */
  readonly giveBack: () => Promise<void>;
}

/** All that was decided about a request so far, by as many guards as there are on its way. */
const outcomesOf = new WeakMap<object, Outcome[]>();

export class Guard<Context extends unknown[], Finished extends unknown[], Denied> {
  readonly #options: RateLimitOptions<Context, Finished, Denied>;
  readonly #policies: readonly string[];
  readonly #respond: ReturnType<typeof responder>;
  readonly #addressOf: (rules: ClientAddressRules | undefined, ...context: Context) => Key;
  readonly #rules: ClientAddressRules | undefined;

  /** `addressOf` finds the client, by rules if somebody gave any. */
  constructor(
    options: RateLimitOptions<Context, Finished, Denied>,
    addressOf: (rules: ClientAddressRules | undefined, ...context: Context) => Key,
  ) {
    const { limiter, policy, headers, resetForm, clientAddress } = options;
    this.#options = options;
    this.#policies = policy === undefined ? [onlyPolicy(limiter)] : [policy].flat();
    this.#respond = responder({ headers, resetForm });
    this.#addressOf = addressOf;
    this.#rules =
      clientAddress === undefined || clientAddress instanceof ClientAddressRules
        ? clientAddress
        : new ClientAddressRules(clientAddress);
  }

  /** Decides about a request; `undefined` when it is skipped. `carrier` is one object for all guards of the request. */
  async decide(carrier: object, ...context: Context): Promise<Verdict | undefined> {
    const { limiter, skip, key, cost } = this.#options;
    if (skip !== undefined && (await skip(...context))) return undefined;
    const whom = key === undefined ? this.#addressOf(this.#rules, ...context) : await key(...context);
    const units = typeof cost === "function" ? await cost(...context) : cost;
    let decisions: readonly Decision[];
    try {
      decisions = await this.#check(whom, units);
    } catch (error) {
      return this.#undecided(error, context);
    }
    const all = decisions.map((decision, at) => ({ policy: this.#policies[at], decision }));
    const rateLimit: RateLimit = { ...mostTelling(all), all };
    const { fields, problem } = this.#respond(
      together(
        carrier,
        all.map((one) => ({ limiter, ...one })),
      ),
      units ?? 1,
    );
    const giveBack = async () => {
      for (const { policy } of all) await limiter.refund(whom, { policy, cost: units });
    };
    const verdict = { rateLimit, fields, problem, giveBack };
    if (decisions.every(({ source }) => source === "store")) return verdict;
    const answer = await this.#options.onOutage?.({ rateLimit, error: undefined }, ...context);
    return answer === "allow" ? { ...verdict, problem: undefined } : verdict;
  }

  /** Gives back what the request has spent if its response does not count. */
  async finish(verdict: Verdict, context: Context, ...finished: Finished): Promise<void> {
    const { count = "every", onOutage } = this.#options;
    if (count === "every") return;
    try {
      if (!(await count(...finished))) await verdict.giveBack();
    } catch (error) {
      // The response is on its way: there is nobody else to tell.
      await onOutage?.({ rateLimit: verdict.rateLimit, error }, ...context);
    }
  }

  /** Whether anybody wants to know how responses end. */
  get waitsForResponse(): boolean {
    return typeof this.#options.count === "function";
  }

  /** The decision of each policy. When one denies, nothing is spent from any. */
  async #check(key: Key, cost: number | undefined): Promise<Decision[]> {
    const { limiter } = this.#options;
    if (this.#policies.length === 1) return [await limiter.check(key, { policy: this.#policies[0], cost })];
    const answers = await limiter.checkMany(this.#policies.map((policy) => ({ key, policy, cost })));
    const error = answers.find((answer) => answer instanceof Error);
    if (error === undefined && (answers as Decision[]).every(({ allowed }) => allowed)) return answers as Decision[];
    const given = answers.map(async (answer, at) => {
      if (answer instanceof Error || !answer.allowed) return answer;
      const { remaining, resetAfterMs, quotas } = await limiter.refund(key, { policy: this.#policies[at], cost });
      return { ...answer, remaining, resetAfterMs, quotas };
    });
    const decisions = await Promise.all(given);
    if (error !== undefined) throw error;
    return decisions as Decision[];
  }

  async #undecided(error: unknown, context: Context): Promise<Verdict | undefined> {
    const { onOutage } = this.#options;
    if (onOutage === undefined || !isOutage(error)) throw error;
    const event: OutageEvent = { rateLimit: undefined, error };
    if ((await onOutage(event, ...context)) === "allow") return undefined;
    throw error;
  }
}

function onlyPolicy(limiter: Limiter): string {
  const names = limiter.policies.map(({ name }) => name);
  if (names.length === 1) return names[0];
  throw invalidArgument(
    `policy is missing, and this limiter has ${names.length}: name one, or quotas such as "100/minute"`,
  );
}

function isOutage(error: unknown): boolean {
  return error instanceof PolylimitError && (error.code === "store_unavailable" || error.code === "store_failed");
}

/** The outcomes of this guard with those of others on the same request; each policy has one, the newest. */
function together(carrier: object, outcomes: readonly Outcome[]): readonly Outcome[] {
  const before = outcomesOf.get(carrier);
  if (before === undefined) {
    outcomesOf.set(carrier, [...outcomes]);
    return outcomes;
  }
  const others = before.filter(({ policy }) => !outcomes.some((outcome) => outcome.policy === policy));
  const all = [...others, ...outcomes];
  outcomesOf.set(carrier, all);
  return all;
}

/** The first denial, or else what has the least left. */
function mostTelling(all: readonly { policy: string; decision: Decision }[]): Decision & { policy: string } {
  let telling = all[0];
  for (const one of all) {
    if (!telling.decision.allowed) break;
    if (!one.decision.allowed || one.decision.remaining < telling.decision.remaining) telling = one;
  }
  return { policy: telling.policy, ...telling.decision };
}
