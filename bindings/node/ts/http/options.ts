/** The options of the middleware, the same in every framework, and their conversion for the core, which checks their values. */

import type { GuardSettings } from "../addon";
import { checkedOptions, hasProperties, type Key, notAllowed, number, optionalFunction, text } from "../arguments";
import type { ClientAddressOptions, ClientAddressRules } from "../client_address";
import type { Decision } from "../decision";
import { invalidArgument, type PolylimitError } from "../errors";
import { HEADER_SETTINGS, type HeaderFields, type HeaderOptions, type Problem } from "../headers";
import type { Limiter } from "../limiter";
import { nativeLimiter } from "../native_limiters";
import { policyText } from "../options";
import { Quota } from "../policy";
import { type AppAttributes, checkByConfiguration } from "./by_configuration";

/** The decision about a request, and its policy. With several policies: the first denial, or the one with the least left. */
export interface RateLimit extends Decision {
  readonly policy: string;
  /** Each policy's decision, in order. */
  readonly all: readonly { readonly policy: string; readonly decision: Decision }[];
}

/** A request that does not proceed, and its default response. */
export interface Denial {
  /** `undefined` when no policy has decided: the store could not decide, or the request has no key. */
  readonly rateLimit: RateLimit | undefined;
  /**
   * The key that was denied, such as an address, for a log. `undefined` for a request without a key, and where the limiter's
   * configuration decides, which may have a key for each policy.
   */
  readonly key: Key | undefined;
  /** 429 or the `status` of the options; 503 because of the store; 400 for a request without a key. */
  readonly status: number;
  readonly problem: Problem;
  /** The header fields. Frameworks that pass a response object to their handlers have set them already. */
  readonly fields: HeaderFields;
}

/** Decisions that were made without the store, or a store that could not decide. */
export interface OutageEvent {
  /** Why no decision could be made; `undefined` when the outage policy decided. */
  readonly error: PolylimitError | undefined;
  /** Each policy with its decision; empty when there is an error. */
  readonly outcomes: readonly { readonly policy: string; readonly decision: Decision }[];
}

/** A part of the key that is read from the request. */
export type KeyPart = "address" | "user" | `header:${string}` | `cookie:${string}` | `path:${string}`;

/** The policies of a request: a policy's name, quotas such as `"100/minute"` or a `Quota`, or a list of them without duplicates. */
export type Policies = string | Quota | readonly (string | Quota)[];

/** What a request has spent: as the response reports it, or as a function returns it. See `spent` of the rate limit. */
export type Spent<Finished extends unknown[]> =
  | string
  | ((...finished: Finished) => MaybePromise<number | null | undefined>);

/**
 * A policy with a cost of its own, such as the tokens of a request, next to a policy that counts requests:
 * `policy: [{ policy: "tokens", cost: tokensOf, spent: tokensUsed }, "requests"]`.
 */
export interface PolicyCharge<Context extends unknown[], Finished extends unknown[]> {
  /** The policy's name, or quotas. */
  readonly policy: string | Quota;
  /** What a request spends under this policy, as `cost` of the rate limit; by default that one. */
  readonly cost?: number | ((...context: Context) => MaybePromise<number>);
  /** What a request has spent under this policy, as `spent` of the rate limit; by default that one. */
  readonly spent?: Spent<Finished>;
}

/**
 * The options of a rate limit. `Context` is what the framework passes to its handlers, `Finished` what it passes when there is
 * a response, and `Denied` what a handler of denials returns.
 */
export interface RateLimitOptions<Context extends unknown[], Finished extends unknown[], Denied> extends HeaderOptions {
  /** The limiter that decides. */
  readonly limiter: Limiter;
  /**
   * The policies, or a function of the request that returns them; with none the request is not limited. Those of a list are
   * decided together: a request that one of them denies spends nothing under any. Optional when the limiter has one policy.
   * When several rate limits on the way of a request charge one policy for one key, the largest of their costs is charged
   * once. A policy in the list may have a cost of its own. A function must return texts of the program, never of its users, because
   * the limiter keeps each of them.
   */
  readonly policy?:
    | Policies
    | PolicyCharge<Context, Finished>
    | readonly (string | Quota | PolicyCharge<Context, Finished>)[]
    | ((...context: Context) => MaybePromise<Policies | null | undefined>);
  /**
   * The budget of quotas without a name, a text of 1 to 256 bytes: all rate limits with the same scope share one. By
   * default it is the route of the rate limit, or the limiter for a rate limit before all routes. A policy with a name has
   * one budget in all scopes.
   */
  readonly scope?: string;
  /**
   * The key to limit: a function of the request, or parts that are read from it, one or a list; by default the client's
   * address. `"user"` is the framework's authenticated user: text, bytes, a whole number, or the `id` or `sub` of an object, which may
   * be an object with a `toString` of its own. A request with any other user fails.
   */
  readonly key?: KeyPart | readonly KeyPart[] | ((...context: Context) => MaybePromise<Key | null | undefined>);
  /**
   * What happens with a request without a key or with an empty one, such as that of an anonymous user: it counts by its client's `address` (the
   * default), shares one budget with all others (`share`), or is refused with status 400 (`refuse`).
   */
  readonly missingKey?: "address" | "share" | "refuse";
  /**
   * The units that a request spends under each policy without a cost of its own: a number or a function of the request; 1 by default. A
   * number that a policy can never admit is an error of the start.
   */
  readonly cost?: number | ((...context: Context) => MaybePromise<number>);
  /**
   * Which requests count: `"every"` (the default), or those for which a function returns true once the status of the response
   * is known, such as failed log-ins. The cost is spent before the request is handled, and refunded if the request does not
   * count; the header fields show it if the refund is done before they are sent. A request whose client left before there was
   * a response counts. So does one for which the function fails, which emits a warning of the process.
   */
  readonly count?: "every" | ((...finished: Finished) => MaybePromise<boolean>);
  /**
   * The units that a request has spent, where they are known only afterwards. With this option a request is reserved under
   * every policy, with its cost, and not only under policies with a quota of concurrency. A text is what the response reports, such as
   * `"usage:total"`, `"header:x-tokens"`, `"json:usage.total_tokens"` or `"3*usage:input + 15*usage:output"`; the body is read as it
   * passes, and not kept. A function gets what `count` gets when the response is done or its client has gone, and returns the units to
   * commit: a whole number from 0 to 10^12, or nothing for the cost. It is not called for a request without a response, and its failure
   * emits a warning of the process and commits the cost, as does a response that reports nothing.
   */
  readonly spent?: Spent<Finished>;
  /**
   * How long a reservation lasts after its last renewal, in milliseconds: 1 ms to 48 h, by default 30 s. So long the units stay set
   * aside after this process has died.
   */
  readonly ttlMs?: number;
  /** How long the reservation of one request is renewed, in milliseconds; 1 h by default, and 0 never renews it. */
  readonly maxAgeMs?: number;
  /**
   * How long a request that would be denied may be held, in milliseconds, up to 60,000: until it would be admitted, if that is in time, and
   * then it is decided again. 0, the default, holds none. A leaky bucket holds a request until its turn.
   */
  readonly waitMs?: number;
  /** How many requests may be held at the same time, 1 to 1,000,000; 100 by default. A further one is denied at once. */
  readonly maxWaiting?: number;
  /**
   * What the program knows of a request, for the rules of the limiter's configuration: an object by names of lower-case letters, digits
   * and `_`. The framework's user is its `user`, and the pattern that the router has matched its `route`, unless the function returns
   * others. Only where the configuration decides, because the limiter has one and no `policy` is given.
   */
  readonly attributes?: (...context: Context) => MaybePromise<AppAttributes | null | undefined>;
  /** Which requests proceed without a decision. */
  readonly skip?: (...context: Context) => MaybePromise<boolean>;
  /** The methods that are limited, in any case; by default all. `GET` includes `HEAD`, to which handlers of `GET` respond. */
  readonly methods?: string | readonly string[];
  /** Whether `HEAD` is separate from `GET`, with a budget of its own on each route; off by default. */
  readonly separateHead?: boolean;
  /**
   * Whether preflights count: the `OPTIONS` requests by which a browser asks whether a page may send a request. Off by default,
   * unless `OPTIONS` is one of the `methods`. A limit on a handler counts each request that reaches the handler.
   */
  readonly countPreflights?: boolean;
  /**
   * The origins whose pages may read denials, such as `https://app.example`, or `*`: a denial to a page of one of them has the
   * fields `access-control-allow-origin` and `access-control-expose-headers`, unless the response has the former already. It is for
   * programs whose CORS middleware comes after the limit.
   */
  readonly corsOrigins?: string | readonly string[];
  /** Decides, spends and sends the fields without ever denying; off by default. */
  readonly dryRun?: boolean;
  /** The status of a request over its limit, 400 to 599; 429 by default. An outage keeps 503. */
  readonly status?: number;
  /** The sentence in the body of the response to a request over its limit. */
  readonly message?: string;
  /** Responds to every request that does not proceed, in place of the problem document. */
  readonly onDenied?: (denial: Denial, ...context: Context) => Denied;
  /**
   * Is called for every decision that was made without the store, and when the store could not decide. It may return `"admit"`
   * or `"deny"`; without that the outage policy's decision holds, and a store that could not decide is answered by 503. It
   * cannot admit what the store itself has denied.
   */
  readonly onOutage?: (
    event: OutageEvent,
    ...context: Context
    // biome-ignore lint/suspicious/noConfusingVoidType: a function that only logs returns nothing
  ) => MaybePromise<"admit" | "deny" | undefined | null | void>;
  /** Which proxies are trusted to report the client's address: rules, or the options of rules. */
  readonly clientAddress?: ClientAddressRules | ClientAddressOptions;
}

export const OPTION_NAMES: readonly string[] = [
  "limiter",
  "policy",
  "scope",
  "key",
  "missingKey",
  "cost",
  "count",
  "spent",
  "ttlMs",
  "maxAgeMs",
  "waitMs",
  "maxWaiting",
  "attributes",
  "skip",
  "methods",
  "separateHead",
  "countPreflights",
  "corsOrigins",
  "dryRun",
  "status",
  "message",
  "onDenied",
  "onOutage",
  "headers",
  "clientAddress",
];

/** Checks the options; `more` are the names of options that only one framework has. The core checks their values. */
export function checkOptions<O extends object>(options: O, more: readonly string[] = []): O {
  checkedOptions("options", options, [...OPTION_NAMES, ...more], "guard");
  const { limiter, count } = options as { readonly limiter?: unknown; readonly count?: unknown };
  nativeLimiter(limiter as Limiter);
  checkSpent((options as { readonly spent?: unknown }).spent);
  for (const name of ["attributes", "skip", "onDenied", "onOutage"]) {
    optionalFunction(name, (options as Record<string, unknown>)[name]);
  }
  if (count !== undefined && count !== "every" && typeof count !== "function") {
    throw notAllowed("count", count, '"every", or a function');
  }
  return options;
}

/** The options as the addon takes them. What is a function of the request is left out. */
export function guardSettings<C extends unknown[], F extends unknown[], D>(
  options: RateLimitOptions<C, F, D>,
): GuardSettings {
  const { key, cost, methods, corsOrigins, status, spent, ttlMs, maxAgeMs, waitMs, maxWaiting } = options;
  const charges = chargesOf(options);
  const own = (name: keyof typeof options, allowed: string) => {
    const value = options[name];
    return value === undefined ? undefined : text(name, value, allowed);
  };
  const isOn = (name: "dryRun" | "separateHead" | "countPreflights") => {
    const { [name]: value = false as unknown } = options;
    if (typeof value !== "boolean") throw notAllowed(name, value, "true or false");
    return value;
  };
  return {
    policies: charges?.map(({ policy }) => policy),
    costs: charges?.map(({ cost }) => (typeof cost === "number" ? cost : undefined)) ?? [],
    reserved: charges?.map((charge) => charge.spent !== undefined || spent !== undefined) ?? [],
    spentBy: typeof spent === "string" ? spent : undefined,
    spentByEach:
      charges?.map((charge) => {
        const one = charge.spent ?? spent;
        return typeof one === "string" ? one : undefined;
      }) ?? [],
    byConfiguration: checkByConfiguration(options),
    perRequest: typeof options.policy === "function",
    scope: own("scope", "text of 1 to 256 bytes"),
    keyParts:
      key === undefined || typeof key === "function" ? [] : textsOfList("key", key, "a function, a part of the key"),
    missingKey: own("missingKey", "address, share or refuse"),
    cost: cost === undefined || typeof cost === "function" ? undefined : number("cost", cost, UNITS),
    methods: methods === undefined ? [] : textsOfList("methods", methods, "a method"),
    separateHead: isOn("separateHead"),
    countPreflights: isOn("countPreflights"),
    corsOrigins:
      corsOrigins === undefined ? [] : texts("corsOrigins", corsOrigins, "an origin such as https://app.example"),
    headers: own("headers", HEADER_SETTINGS),
    status: status === undefined ? undefined : number("status", status, "400 to 599"),
    message: own("message", "a sentence"),
    dryRun: isOn("dryRun"),
    spends: spent !== undefined,
    ttlMs: ttlMs === undefined ? undefined : number("ttlMs", ttlMs, "a number of milliseconds"),
    maxAgeMs: maxAgeMs === undefined ? undefined : number("maxAgeMs", maxAgeMs, "a number of milliseconds"),
    waitMs: waitMs === undefined ? undefined : number("waitMs", waitMs, "a number of milliseconds"),
    maxWaiting: maxWaiting === undefined ? undefined : number("maxWaiting", maxWaiting, "1 to 1000000"),
    hearsOutages: options.onOutage !== undefined,
  };
}

/** A policy of a rate limit, with what is its own. */
export interface Charge<Context extends unknown[], Finished extends unknown[]> {
  readonly policy: string;
  readonly cost: PolicyCharge<Context, Finished>["cost"];
  readonly spent: PolicyCharge<Context, Finished>["spent"];
}

const CHARGE = ["policy", "cost", "spent"];
const OF_POLICY = "a policy's name or quotas, or a list of them";

/** The policies of a rate limit; `undefined` where they are a function, or the only one of the limiter. */
export function chargesOf<C extends unknown[], F extends unknown[], D>({
  policy,
}: RateLimitOptions<C, F, D>): Charge<C, F>[] | undefined {
  if (policy === undefined || typeof policy === "function") return undefined;
  return [policy].flat().map((one) => {
    if (!hasProperties(one) || one instanceof Quota) {
      return { policy: policyText(one, OF_POLICY), cost: undefined, spent: undefined };
    }
    const { policy, cost, spent } = checkedOptions("policy", one as PolicyCharge<C, F>, CHARGE, "guard");
    if (cost !== undefined && typeof cost !== "function") number("cost", cost, UNITS);
    return { policy: policyText(policy, OF_POLICY), cost, spent: checkSpent(spent) };
  });
}

const UNITS = "a number of units, or a function";

function checkSpent<T>(spent: T): T {
  if (spent === undefined || typeof spent === "string" || typeof spent === "function") return spent;
  throw notAllowed("spent", spent, 'a function, or text such as "usage:total"');
}

/** One text or several. */
function texts(name: string, given: unknown, allowed: string): string[] {
  const values: readonly unknown[] = Array.isArray(given) ? given : [given];
  return values.map((value) => text(name, value, `${allowed}, or a list of them`));
}

/** The same, of which an empty list would have another meaning than its author thinks. */
function textsOfList(name: string, given: unknown, allowed: string): string[] {
  const found = texts(name, given, allowed);
  if (found.length === 0) throw invalidArgument(`${name} is an empty list: leave it out, or give ${allowed}`);
  return found;
}

/** A value, or a promise of it. Awaiting takes longer than a decision, so that an available value is never awaited. */
export type MaybePromise<T> = T | PromiseLike<T>;

export function isPromise<T>(value: MaybePromise<T>): value is PromiseLike<T> {
  return typeof value === "object" && value !== null && typeof (value as PromiseLike<T>).then === "function";
}

/** The policies that a function of the request has returned. */
export function policyList(found: Policies | null | undefined): string[] {
  const policies = [found ?? []].flat() as unknown[];
  return policies.map((one) => policyText(one, `${OF_POLICY}, or nothing`));
}
