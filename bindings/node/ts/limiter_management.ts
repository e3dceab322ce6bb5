/** The operations of a limiter that are on no key of the program's: on its store, its policies and its configuration. */

import { camelCase, number, text } from "./arguments";
import {
  type CandidateCounts,
  type ConfigurationStatus,
  candidateCounts,
  configuration,
  type DecideOptions,
  decide,
  deleteEntry,
  type EntryValue,
  matching,
  type PolicyMatch,
  type PublishOptions,
  publish,
  type RequestAttributes,
  type RequestDecision,
  setDocument,
  setEntry,
  waitForVersion,
} from "./configuration";
import { callNative } from "./errors";
import type { Finding } from "./events";
import { exchange } from "./exchange";
import { nativeOf, operateAll } from "./native_limiters";
import { POLICY, TIMEOUT } from "./options";
import { type PolicyView, policyView, type Quotas, quotasText } from "./policy";

/** What a `Limiter` has besides its operations on keys. */
export abstract class LimiterManagement {
  /** For `using`: closes the limiter. */
  declare [Symbol.dispose]: () => void;

  /**
   * Waits until the store answers, at most `timeoutMs` milliseconds. A service calls it at its start, so that its first
   * decisions are the store's; a limiter works without it too.
   */
  ready(timeoutMs: number): Promise<void> {
    return operateAll(
      this,
      (native) => native.ready(number("timeoutMs", timeoutMs, TIMEOUT)),
      () => undefined,
    );
  }

  /** Examines the store for problems of its operation. A store that cannot be reached is a finding, not an error. */
  doctor(): Promise<Finding[]> {
    return operateAll(
      this,
      (native) => native.doctor(),
      () => Array.from(exchange.findings(), (finding) => ({ ...finding }) as Finding),
    );
  }

  /**
   * Finds the policy that decides a request with this `policy` option: a name, quotas, or nothing. Quotas become a policy,
   * whose name requests may use from then on. In a `scope`, a text of 1 to 256 bytes, quotas have a budget of their own; a
   * policy with a name has one budget in all scopes.
   *
   * @throws PolylimitError `invalid_argument` when no policy has that name, the quotas cannot be read, or `policy` is
   * missing and the limiter has several
   */
  policyFor(policy?: string, scope?: string): PolicyView {
    const native = nativeOf(this);
    if (policy !== undefined) text("policy", policy, POLICY);
    if (scope !== undefined) text("scope", scope, "text of 1 to 256 bytes");
    return policyView(callNative(() => native.policyFor(policy, scope)));
  }

  /** Adds a policy, or changes the numbers of the one of that name. Usage is kept. */
  setPolicy(name: string, quotas: Quotas): void {
    const native = nativeOf(this);
    text("name", name, "a policy's name");
    const quotaText = quotasText(name, quotas);
    callNative(() => native.setPolicy(name, quotaText));
  }

  /** Which configuration is in force; `undefined` for a limiter without one. */
  configuration(): ConfigurationStatus | undefined {
    return configuration(this);
  }

  /**
   * Replaces the document that the program has given with the option `document`; its entries stay.
   *
   * @throws PolylimitError `invalid_argument` when the document cannot be used: `line L, column C: ...`. The one before stays in force
   */
  setDocument(document: string | object): ConfigurationStatus {
    return setDocument(this, document);
  }

  /**
   * Sets an entry of the configuration: `deny ITEM`, `allow ITEM` or `override POLICY KEY`, such as `deny client 203.0.113.0/24`. The
   * promise has the configuration in which the entry is in force. The value is an object or its JSON text; an override has `numbers`.
   */
  setEntry(entry: string, value: EntryValue | string = {}): Promise<ConfigurationStatus> {
    return setEntry(this, entry, value);
  }

  /** Deletes an entry of the configuration; one that is not there is no error. */
  deleteEntry(entry: string): Promise<ConfigurationStatus> {
    return deleteEntry(this, entry);
  }

  /**
   * Publishes a document to the Redis store that this limiter's configuration comes from, and waits until it is in force here. Every
   * process that follows the store takes it within a second.
   */
  publish(document: string | object, options: PublishOptions = {}): Promise<ConfigurationStatus> {
    return publish(this, document, options);
  }

  /**
   * Waits until this version of the configuration or a later one is in force, at most `timeoutMs` milliseconds. It fails with
   * `store_unavailable` when the time passes before.
   */
  waitForVersion(version: number, timeoutMs: number): Promise<ConfigurationStatus> {
    return waitForVersion(this, version, timeoutMs);
  }

  /**
   * The policies that the configuration's rules apply to a request, with key, cost and headroom. Nothing is decided.
   *
   * @throws PolylimitError `invalid_argument` also without a configuration, and when the attribute that gives a cost holds none
   */
  matching(request: RequestAttributes): PolicyMatch[] {
    return matching(this, request);
  }

  /**
   * Decides about a request by the configuration: its lists, rules and policies. Policies with a quota of concurrency are reserved,
   * all others spend; when one denies, the others give back what they have.
   *
   * ```ts
   * const { allowed, status } = await limiter.decide({ method: "POST", path: "/login", peer: "203.0.113.7" });
   * ```
   */
  decide(request: RequestAttributes, options: DecideOptions = {}): Promise<RequestDecision> {
    return decide(this, request, options);
  }

  /**
   * How the candidate of a policy and the numbers in force have decided the checks that both have seen, counted by this limiter;
   * `undefined` for a policy without a candidate.
   */
  candidateCounts(policy: string): CandidateCounts | undefined {
    return candidateCounts(this, policy);
  }

  /** All policies, including those made from quotas in requests. */
  get policies(): PolicyView[] {
    return Array.from(nativeOf(this).policies(), policyView);
  }

  /** The number of keys in a `memory:` or `local:` store; `undefined` for Redis. */
  get keys(): number | undefined {
    return nativeOf(this).keys() ?? undefined;
  }

  /** Counters of the limiter's operations since its start, by name. */
  stats(): Record<string, number> {
    const counts = nativeOf(this).stats();
    return Object.fromEntries(counts.map(({ name, count }) => [camelCase(name), count]));
  }

  /** Sets the password, and the user name if there is one, with which new connections authenticate. */
  setCredentials(username: string | undefined, password: string): void {
    const native = nativeOf(this);
    if (username !== undefined) text("username", username, "text");
    text("password", password, "text");
    callNative(() => native.setCredentials(username, password));
  }

  /**
   * Closes the limiter, and releases its connections, threads and memory at once. Pending and later operations fail with
   * `closed`. Closing again has no effect.
   */
  close(): void {
    const native = nativeOf(this);
    callNative(() => native.close());
  }
}

// The oldest supported version of Node has no such symbol.
if (Symbol.dispose !== undefined) {
  Object.defineProperty(LimiterManagement.prototype, Symbol.dispose, { value: LimiterManagement.prototype.close });
}
