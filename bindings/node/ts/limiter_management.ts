/** The operations of a limiter besides those that decide: on its store, its keys, its policies and its configuration. */

import { type Key, number, text } from "./arguments";
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
import type { MetricFamily, MetricsFormat } from "./metrics";
import { camelCase } from "./names";
import { nativeOf, operateAll } from "./native_limiters";
import { policyOf, type RequestOptions, TIMEOUT } from "./options";
import { type PolicyView, policyView, type Quota, type Quotas, quotasText } from "./policy";
import {
  explain,
  explainRequest,
  type KeyExplanation,
  type KeyPage,
  type ListOptions,
  list,
  type RequestExplanation,
  type ResetPage,
  resetListed,
  type ScanTopOptions,
  scanTop,
  type TopKeys,
  topKeys,
} from "./reports";

/** What a `Limiter` has besides the operations that decide. */
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
  policyFor(policy?: string | Quota, scope?: string): PolicyView {
    const native = nativeOf(this);
    const named = policyOf({ policy });
    if (scope !== undefined) text("scope", scope, "text of 1 to 256 bytes");
    return policyView(callNative(() => native.policyFor(named, scope)));
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

  /**
   * The keys that the store has, a page at a time, with what is used of their quotas; keys of which nothing counts any more are left
   * out. A key that is there from the first page to the last is listed; one that comes or goes meanwhile may be, and a key may be
   * listed twice.
   *
   * ```ts
   * let cursor: string | null = null;
   * do {
   *   const page: KeyPage = await limiter.list({ policy: "api", atLeastUsed: 80, cursor });
   *   for (const { key, usedPercent } of page.keys) console.log(key, usedPercent);
   *   cursor = page.cursor;
   * } while (cursor !== null);
   * ```
   *
   * In Redis the keys are found by `SCAN`, for which the user needs the right. It fails with `invalid_argument` for a budget out of
   * bounds and the cursor of another list, with `store_unavailable` when the store does not answer, and with `store_failed` when the
   * user may not list keys.
   */
  list(options: ListOptions = {}): Promise<KeyPage> {
    return list(this, options);
  }

  /**
   * The keys of which the most is used, so many at most, first the one of which most is: exact for all keys that are examined. With a
   * cursor in the answer, not all were. It fails as `list` does.
   *
   * @param most a whole number of keys
   */
  scanTop(most: number, options: ScanTopOptions = {}): Promise<KeyPage> {
    return scanTop(this, most, options);
  }

  /**
   * Resets the keys of a page, which `list` would give for the same options: the store forgets them, with what they have used, their
   * blocks and their reservations. Keys of policies that this limiter does not know stay. It fails as `list` does; keys may have been
   * reset before.
   */
  resetListed(options: ListOptions = {}): Promise<ResetPage> {
    return resetListed(this, options);
  }

  /**
   * Why a check would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and reservations; and what
   * the configuration says about the key. It charges nothing. It fails with `store_unavailable` when the store does not answer: no
   * outage policy answers in its place.
   */
  explain(key: Key, options: RequestOptions | string | Quota = {}): Promise<KeyExplanation> {
    return explain(this, key, options);
  }

  /**
   * Why a request, by its attributes, would be admitted or denied by the configuration: the lists, the rules that match, and what each of
   * their policies says. It fails as `explain` and `matching` do.
   */
  explainRequest(request: RequestAttributes): Promise<RequestExplanation> {
    return explainRequest(this, request);
  }

  /**
   * The keys that this limiter has denied and admitted most often in this process lately, so many of each at most. It needs the option
   * `observeKeys`; without, there are none. A sample is counted, one of 16 denials and one of 64 admissions, and all counts are halved
   * once a minute.
   *
   * @param most a whole number of keys
   */
  topKeys(most: number): TopKeys {
    return topKeys(this, most);
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

  /**
   * What this limiter has decided since it was made, and the state of its store and of its configuration. No key is in it. The
   * families are always the same; those that do not apply to the limiter have no samples. docs/metrics.md describes each;
   * `polylimit/prometheus` and `polylimit/opentelemetry` hand them to a monitoring system.
   */
  metrics(): MetricFamily[] {
    const native = nativeOf(this);
    return JSON.parse(callNative(() => native.metrics()));
  }

  /**
   * The metrics as the text that monitoring systems read. Its media type is `text/plain; version=0.0.4; charset=utf-8` for
   * `prometheus`, which is the default, and `application/openmetrics-text; version=1.0.0; charset=utf-8` for `openmetrics`.
   */
  metricsText(format: MetricsFormat = "prometheus"): string {
    const native = nativeOf(this);
    text("format", format, "prometheus or openmetrics");
    return callNative(() => native.metricsText(format));
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
