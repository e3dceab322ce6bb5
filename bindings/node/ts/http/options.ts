/** The options of the middleware, the same in every framework, and their checks. */

import { checkedOptions, excerpt, type Key, notAllowed, number, optionalFunction, text } from "../arguments";
import type { ClientAddressOptions, ClientAddressRules } from "../client_address";
import type { Decision } from "../decision";
import { callNative, invalidArgument } from "../errors";
import type { HeaderFields, HeaderOptions, Problem } from "../headers";
import { type Limiter, nativeLimiter } from "../limiter";
import { native } from "../native";

/** The decision about a request, and its policy. With several policies: the first denial, or the one with the least left. */
export interface RateLimit extends Decision {
  readonly policy: string;
  /** Each policy's decision, in order. */
  readonly all: readonly { readonly policy: string; readonly decision: Decision }[];
}

/** A denied request, and its default response. */
export interface Denial {
  readonly rateLimit: RateLimit;
  readonly status: number;
  readonly problem: Problem;
  /** The header fields. Frameworks that pass a response object to their handlers have set them already. */
  readonly fields: HeaderFields;
}

/**
 * The options of a rate limit. `Context` is what the framework passes to its handlers, `Finished` what it passes when a
 * response has ended, and `Denied` what a handler of denials returns.
 */
export interface RateLimitOptions<Context extends unknown[], Finished extends unknown[], Denied> extends HeaderOptions {
  /** The limiter that decides. */
  readonly limiter: Limiter;
  /**
   * A policy's name, quotas such as `"100/minute"`, or a list of them without duplicates. Those of a list are decided
   * together: a request that one of them denies spends nothing under any. Optional when the limiter has one policy.
   * When several rate limits on the way of a request charge one policy for one key, the largest of their costs is charged once.
   */
  readonly policy?: string | readonly string[];
  /**
   * The budget of quotas without a name, a text of 1 to 256 bytes: all rate limits with the same scope share one. By
   * default it is the route of the rate limit, or the limiter for a rate limit before all routes. A policy with a name has
   * one budget in all scopes.
   */
  readonly scope?: string;
  /**
   * The key to limit; by default the client's address. A request for which it returns `undefined` or `null`, such as that of
   * an anonymous user, is limited by the address too.
   */
  readonly key?: (...context: Context) => MaybePromise<Key | null | undefined>;
  /** The units that a request spends: a number or a function of the request; 1 by default. */
  readonly cost?: number | ((...context: Context) => MaybePromise<number>);
  /**
   * Which requests count: `"every"` (the default), or those for which a function returns true once the response has ended,
   * such as failed log-ins. The cost is spent before the request is handled, and refunded if the request does not count.
   * On Node's sockets, a request whose client left before there was a response counts. So does one for which the function
   * fails, which emits a warning of the process.
   */
  readonly count?: "every" | ((...finished: Finished) => MaybePromise<boolean>);
  /** Which requests proceed without a decision. */
  readonly skip?: (...context: Context) => MaybePromise<boolean>;
  /** Responds to a request over its limit, in place of the problem document. */
  readonly onDenied?: (denial: Denial, ...context: Context) => Denied;
  /**
   * Responds to a request that is denied because the store is unavailable and the outage policy is `deny`. With another
   * outage policy it is not called: `rateLimit.source` and `rateLimit.degraded` show such decisions.
   */
  readonly onOutage?: (denial: Denial, ...context: Context) => Denied;
  /** Which proxies are trusted to report the client's address: rules, or the options of rules. */
  readonly clientAddress?: ClientAddressRules | ClientAddressOptions;
}

const NAMES = [
  "limiter",
  "policy",
  "scope",
  "key",
  "cost",
  "count",
  "skip",
  "onDenied",
  "headers",
  "resetForm",
  "onOutage",
  "clientAddress",
];

/** Refuses an empty list and duplicates. */
function checkPolicies(policies: readonly unknown[]): void {
  const allowed = "a policy's name or quotas, or a list of at least one of them";
  if (policies.length === 0) throw invalidArgument(`policy is an empty list: allowed is ${allowed}`);
  const seen = new Set<string>();
  for (const policy of policies) {
    const name = text("policy", policy, allowed);
    if (seen.has(name)) throw invalidArgument(`policy ${excerpt(name)} is given twice: once is enough`);
    seen.add(name);
  }
}

/** Refuses a cost that no request may have. */
export function checkCost(units: number): void {
  callNative(() => native.checkCost(units));
}

/** Checks the options; `more` are the names of options that only one framework has. */
export function checkOptions<O extends object>(options: O, more: readonly string[] = []): O {
  checkedOptions("options", options, [...NAMES, ...more]);
  const given = options as Record<string, unknown>;
  const { limiter, policy, scope, cost, count } = given;
  nativeLimiter(limiter as Limiter);
  if (policy !== undefined) checkPolicies([policy].flat());
  for (const name of ["key", "skip", "onDenied", "onOutage"]) optionalFunction(name, given[name]);
  if (scope !== undefined) text("scope", scope, "text of 1 to 256 bytes");
  if (cost !== undefined && typeof cost !== "function")
    checkCost(number("cost", cost, "a number of units, or a function"));
  if (count !== undefined && count !== "every" && typeof count !== "function") {
    throw notAllowed("count", count, '"every", or a function');
  }
  return options;
}

/** A value, or a promise of it. Awaiting takes longer than a decision, so that an available value is never awaited. */
export type MaybePromise<T> = T | PromiseLike<T>;

export function isPromise<T>(value: MaybePromise<T>): value is PromiseLike<T> {
  return typeof value === "object" && value !== null && typeof (value as PromiseLike<T>).then === "function";
}
