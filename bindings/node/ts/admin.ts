/** The operations of a limiter that only operators use: on its store, its keys and its configuration. */

import { type Key, text } from "./arguments";
import {
  type CandidateCounts,
  type ConfigurationStatus,
  candidateCounts,
  configuration,
  deleteEntry,
  type EntryValue,
  matching,
  type PolicyMatch,
  type PublishOptions,
  publish,
  type RequestAttributes,
  setDocument,
  setEntry,
  waitForVersion,
} from "./configuration";
import type { Usage } from "./decision";
import { callNative, methodError } from "./errors";
import type { Finding } from "./events";
import { exchange } from "./exchange";
import { nativeOf, operateAll } from "./native_limiters";
import type { RequestOptions } from "./options";
import type { Quota } from "./policy";
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
import { block, type PolicyChoice } from "./reservation";

const limiters = new WeakMap<Admin, object>();

/** The operations of a limiter for operators, which `Limiter.admin` returns. They fail as those of the limiter do. */
export class Admin {
  /** @internal */
  constructor(limiter: object) {
    limiters.set(this, limiter);
  }

  /**
   * Blocks the key under its policy for `forMs` milliseconds from now, unless it is blocked for longer: 1 ms to 366 days, with a
   * fraction down to the microsecond. 0 forgets the block, and the denials and blocks that a penalty has counted.
   *
   * While a key is blocked, its checks, peeks and reserves are denied with the cause `blocked`, and a take takes nothing; all
   * other operations go on. A store in this process that is full of states in use does not block a key without a state: then
   * `degraded` has the reason.
   */
  async block(key: Key, forMs: number, options?: PolicyChoice | string | Quota): Promise<Usage> {
    return block(limiterOf(this), key, forMs, options);
  }

  /** Forgets the key's block, and the denials and blocks that a penalty has counted: `block` for 0 ms. */
  async unblock(key: Key, options?: PolicyChoice | string | Quota): Promise<Usage> {
    return block(limiterOf(this), key, 0, options);
  }

  /** Examines the store for problems of its operation. A store that cannot be reached is a finding, not an error. */
  async doctor(): Promise<Finding[]> {
    return operateAll(
      limiterOf(this),
      (native) => native.doctor(),
      () => Array.from(exchange.findings(), (finding) => ({ ...finding }) as Finding),
    );
  }

  /** The number of keys in a `memory:` or `local:` store; `undefined` for Redis. */
  get keys(): number | undefined {
    return nativeOf(limiterOf(this)).keys() ?? undefined;
  }

  /**
   * The keys that this limiter has denied and admitted most often in this process lately, this many of each at most. It needs the option
   * `observeKeys`; without, there are none. A sample is counted, one of 16 denials and one of 64 admissions, and all counts are halved
   * once a minute.
   *
   * @param most a whole number of keys
   */
  topKeys(most: number): TopKeys {
    return topKeys(limiterOf(this), most);
  }

  /**
   * The keys that the store has, a page at a time, with what is used of their quotas; keys of which nothing counts any more are left
   * out. A key that is there from the first page to the last is listed; one that comes or goes meanwhile may be, and a key may be
   * listed twice.
   *
   * ```ts
   * let cursor: string | null = null;
   * do {
   *   const page: KeyPage = await limiter.admin().list({ policy: "api", atLeastUsed: 80, cursor });
   *   for (const { key, usedPercent } of page.keys) console.log(key, usedPercent);
   *   cursor = page.cursor;
   * } while (cursor !== null);
   * ```
   *
   * In Redis the keys are found by `SCAN`, for which the user needs the right. It fails with `invalid_argument` for a budget out of
   * bounds and the cursor of another list, with `store_unavailable` when the store does not answer, and with `store_failed` when the
   * user may not list keys.
   */
  async list(options: ListOptions = {}): Promise<KeyPage> {
    return list(limiterOf(this), options);
  }

  /**
   * The most used keys, at most this many, in descending order: exact for all keys that are examined. With a
   * cursor in the answer, not all were. It fails as `list` does.
   *
   * @param most a whole number of keys
   */
  async scanTop(most: number, options: ScanTopOptions = {}): Promise<KeyPage> {
    return scanTop(limiterOf(this), most, options);
  }

  /**
   * Resets the keys of a page, which `list` would give for the same options: the store forgets them, with what they have used, their
   * blocks and their reservations. Keys of policies that this limiter does not know stay. It fails as `list` does; keys may have been
   * reset before.
   */
  async resetListed(options: ListOptions = {}): Promise<ResetPage> {
    return resetListed(limiterOf(this), options);
  }

  /**
   * Why a check would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and reservations; and what
   * the configuration says about the key. It charges nothing. It fails with `store_unavailable` when the store does not answer: no
   * outage policy answers in its place.
   */
  async explain(key: Key, options: RequestOptions | string | Quota = {}): Promise<KeyExplanation> {
    return explain(limiterOf(this), key, options);
  }

  /**
   * Why a request, by its attributes, would be admitted or denied by the configuration: the lists, the rules that match, and what each of
   * their policies says. It fails as `explain` and `matching` do.
   */
  async explainRequest(request: RequestAttributes): Promise<RequestExplanation> {
    return explainRequest(limiterOf(this), request);
  }

  /**
   * The policies that the configuration's rules apply to a request, with key, cost and headroom. Nothing is decided.
   *
   * @throws PolylimitError `invalid_argument` also without a configuration, and when the attribute that gives a cost holds none
   */
  matching(request: RequestAttributes): PolicyMatch[] {
    return matching(limiterOf(this), request);
  }

  /** Which configuration is active; `undefined` for a limiter without one. */
  configuration(): ConfigurationStatus | undefined {
    return configuration(limiterOf(this));
  }

  /**
   * Replaces the document that the program has given with the option `document`; its entries stay.
   *
   * @throws PolylimitError `invalid_argument` when the document cannot be used: `line L, column C: ...`. The previous one stays active
   */
  setDocument(document: string | object): ConfigurationStatus {
    return setDocument(limiterOf(this), document);
  }

  /**
   * Sets an entry of the configuration: `deny ITEM`, `allow ITEM` or `override POLICY KEY`, such as `deny client 203.0.113.0/24`. The
   * promise has the configuration in which the entry is active. The value is an object or its JSON text; an override has `numbers`.
   */
  async setEntry(entry: string, value: EntryValue | string = {}): Promise<ConfigurationStatus> {
    return setEntry(limiterOf(this), entry, value);
  }

  /** Deletes an entry of the configuration; one that is not there is no error. */
  async deleteEntry(entry: string): Promise<ConfigurationStatus> {
    return deleteEntry(limiterOf(this), entry);
  }

  /**
   * Publishes a document to the Redis store that this limiter's configuration comes from, and waits until it is active here. Every
   * process that follows the store takes it within a second.
   */
  async publish(document: string | object, options: PublishOptions = {}): Promise<ConfigurationStatus> {
    return publish(limiterOf(this), document, options);
  }

  /**
   * Waits until this version of the configuration or a later one is active, at most `timeoutMs` milliseconds. It fails with
   * `store_unavailable` when the time passes before.
   */
  async waitForVersion(version: number, timeoutMs: number): Promise<ConfigurationStatus> {
    return waitForVersion(limiterOf(this), version, timeoutMs);
  }

  /**
   * How the candidate of a policy and the effective quotas have decided the checks that both have seen, counted by this limiter;
   * `undefined` for a policy without a candidate.
   */
  candidateCounts(policy: string): CandidateCounts | undefined {
    return candidateCounts(limiterOf(this), policy);
  }

  /** Sets the password, and the user name if there is one, with which new connections authenticate. */
  setCredentials(username: string | undefined, password: string): void {
    const native = nativeOf(limiterOf(this));
    if (username !== undefined) text("username", username, "text");
    text("password", password, "text");
    callNative(() => native.setCredentials(username, password));
  }
}

/** The limiter of a method's object. A method that returns a promise is `async`, so that without its object it rejects. */
function limiterOf(admin: Admin): object {
  const found = limiters.get(admin);
  if (found === undefined) throw methodError(false, "Admin", undefined);
  return found;
}
