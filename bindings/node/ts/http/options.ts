/** The options that every framework has, by the same names. */

import { excerpt, invalidArgument, known, number, optionalFunction, refused, text } from "../argument";
import type { ClientAddressOptions, ClientAddressRules } from "../client_address";
import type { Decision } from "../decision";
import { calling } from "../failure";
import type { HeaderFields, HeaderOptions, Problem } from "../headers";
import type { Key } from "../key";
import type { Limiter } from "../limiter";
import { nativeLimiter } from "../limiter";
import { native } from "../native";
import type { MaybePromise } from "./maybe_promise";

/** What was decided about a request: the decision, and under which policy. Of several, the one that says most. */
export interface RateLimit extends Decision {
  readonly policy: string;
  /** Each policy's decision, in order. */
  readonly all: readonly { readonly policy: string; readonly decision: Decision }[];
}

/** A request that was denied, and what is answered unless told otherwise. */
export interface Denial {
  readonly rateLimit: RateLimit;
  readonly status: number;
  readonly problem: Problem;
  /** The fields of the response; a framework that has a response before there is an answer has set them already. */
  readonly fields: HeaderFields;
}

/**
 * What is to be limited, and how. `Context` is what the framework hands to its handlers, `Finished` what there is when a
 * response is done, and `Denied` what answers a denied request.
 */
export interface RateLimitOptions<Context extends unknown[], Finished extends unknown[], Denied> extends HeaderOptions {
  /** The limiter that decides. */
  readonly limiter: Limiter;
  /**
   * A policy's name, quotas such as `"100/minute"`, or a list of them, which are decided together: a request that one of
   * them denies spends nothing from any. None may be given twice. It may be left out where the limiter has one policy.
   * What several limits on the way of one request take from one policy for one key is taken once: the largest cost of them.
   */
  readonly policy?: string | readonly string[];
  /**
   * Whose budget quotas without a name take from: all that give the same text share one. Unless told otherwise, such quotas
   * belong to the route that they are given at; in what stands before all routes, to the limiter. A policy with a name is
   * shared, whatever the scope. 1 to 256 bytes.
   */
  readonly scope?: string;
  /**
   * Whom to count; the client's address unless told otherwise. A request for which this gives `undefined` or `null`, such as
   * one of an anonymous user, is counted by the address too.
   */
  readonly key?: (...context: Context) => MaybePromise<Key | null | undefined>;
  /** The units that a request spends, a number or a function of the request; 1 unless told otherwise. */
  readonly cost?: number | ((...context: Context) => MaybePromise<number>);
  /**
   * Which requests count: `"every"`, unless told otherwise, or those for whose response a function says so, such as failed
   * log-ins. What a request costs is reserved before it is handled, and given back when its response does not count.
   * On Node's sockets, a request whose client has left before there was a response counts. So does one for which the function
   * fails, and the process warns of that.
   */
  readonly count?: "every" | ((...finished: Finished) => MaybePromise<boolean>);
  /** Requests that are let through without a decision. */
  readonly skip?: (...context: Context) => MaybePromise<boolean>;
  /** Answers a request over its limit in place of the problem document. */
  readonly onDenied?: (denial: Denial, ...context: Context) => Denied;
  /**
   * The same for a request that is denied because the store cannot be asked, and the policy denies then. One that another
   * decides in the store's place is none of these: `rateLimit.source` and `rateLimit.degraded` tell.
   */
  readonly onOutage?: (denial: Denial, ...context: Context) => Denied;
  /** Whose word about the client's address is taken; the rules, or their options. */
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

/** Refuses what would limit nothing, or spend twice. */
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

/** Refuses what no request can cost. */
export function checkCost(units: number): void {
  calling(() => native.checkCost(units));
}

/** Refuses what cannot be right, by its name. `more` are options that only one framework has. */
export function checkOptions<O extends object>(options: O, more: readonly string[] = []): O {
  known("options", options, [...NAMES, ...more]);
  const given = options as Record<string, unknown>;
  const { limiter, policy, scope, cost, count } = given;
  nativeLimiter(limiter as Limiter);
  if (policy !== undefined) checkPolicies([policy].flat());
  for (const name of ["key", "skip", "onDenied", "onOutage"]) optionalFunction(name, given[name]);
  if (scope !== undefined) text("scope", scope, "text of 1 to 256 bytes");
  if (cost !== undefined && typeof cost !== "function")
    checkCost(number("cost", cost, "a number of units, or a function"));
  if (count !== undefined && count !== "every" && typeof count !== "function") {
    throw refused("count", count, '"every", or a function');
  }
  return options;
}
