/** A store for express-rate-limit: its users switch by changing one line. */

import type { ClientRateLimitInfo, Options, Store } from "express-rate-limit";

import { invalidArgument, known, number, text } from "./argument";
import type { Decision, Usage } from "./decision";
import { PolylimitError } from "./failure";
import { isOfProcess, Limiter } from "./limiter";
import { Quota } from "./quota";

/** What the store counts with. */
export interface PolylimitStoreOptions {
  /**
   * The limiter that counts, or the URL of a store to make one for. That one is closed by `shutdown`; one that was given is
   * left to its maker.
   */
  readonly limiter: Limiter | string;
  /** What every key begins with, so that several of express-rate-limit's limits do not count together. */
  readonly prefix?: string;
}

/** It counts up to here; the limit is express-rate-limit's own and is applied there. */
const LARGEST = 1_000_000_000_000;

/** A window before express-rate-limit has told its own: that one's default. */
const USUAL_WINDOW_MS = 60_000;

/**
 * Counts as express-rate-limit's own stores do: in windows that start with a client's first request, whatever the limit.
 * Requests over the limit are counted too. When no decision can be made, or the policy in place of the store denies, it
 * fails, and `passOnStoreError` says what then. Where each process counts by itself in place of the store, it admits the
 * whole limit, whatever `fallbackShare` says: the limit is not told here.
 */
export class PolylimitStore implements Store {
  readonly prefix: string;
  readonly #limiter: Limiter;
  readonly #isOwn: boolean;
  #policy: string | undefined;
  /** Why `init` has refused the window. */
  #refusal: unknown;
  readonly #emptied = new Emptied();
  /** How often all was forgotten. */
  #generation = 0;

  /** @throws PolylimitError `invalid_argument` with the name of the option */
  constructor(options: PolylimitStoreOptions) {
    const { limiter, prefix = "" } = known("options", options, ["limiter", "prefix"]);
    this.prefix = text("prefix", prefix, "text");
    this.#isOwn = !(limiter instanceof Limiter);
    this.#limiter = limiter instanceof Limiter ? limiter : new Limiter(limiter);
    stores.set(this.#limiter, (stores.get(this.#limiter) ?? 0) + 1);
  }

  /**
   * Whether no other store can count the same: this one is the only one of a limiter that counts in this process. By this
   * express-rate-limit knows what counts one request twice.
   */
  get localKeys(): boolean {
    return isOfProcess(this.#limiter) && stores.get(this.#limiter) === 1;
  }

  /**
   * Called by express-rate-limit with its options, when a limit is made. A store that was not is used with its default window.
   *
   * @throws PolylimitError `invalid_argument` when the window is none that a quota can have: 1 ms to 366 days
   */
  init({ windowMs }: Pick<Options, "windowMs">): void {
    try {
      number("windowMs", windowMs, "a number of milliseconds, 1 to 366 days");
      const quota = new Quota(LARGEST, windowMs, { algorithm: "fixed_window" });
      this.#policy = this.#limiter.policyFor(quota.text).name;
      this.#refusal = undefined;
    } catch (error) {
      this.#refusal = error;
      throw error;
    }
  }

  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const decision = answered(await this.#limiter.peek(this.#key(key), this.#named()));
    return decision.resetAfterMs === 0 && !this.#emptied.has(key) ? undefined : hits(decision);
  }

  async increment(key: string): Promise<ClientRateLimitInfo> {
    const counted = hits(answered(await this.#limiter.check(this.#key(key), this.#named())));
    // Where an outage admits everything, nothing is counted; express-rate-limit wants to hear of the request all the same.
    return { ...counted, totalHits: Math.max(counted.totalHits, 1) };
  }

  async decrement(key: string): Promise<void> {
    const { resetAfterMs } = answered(await this.#limiter.refund(this.#key(key), this.#named()));
    if (resetAfterMs === 0) this.#emptied.add(key);
  }

  /**
   * Forgets a key. express-rate-limit reads this right after `init` when a limit is made, and only logs what `init` throws: so
   * a limit whose window `init` has refused fails here, where it is made, and not with each request.
   *
   * @throws PolylimitError `invalid_argument` when `init` has refused the window
   */
  get resetKey(): (key: string) => Promise<void> {
    if (this.#refusal !== undefined) throw this.#refusal;
    return this.#resetKey;
  }

  async #resetKey(key: string): Promise<void> {
    answered(await this.#limiter.reset(this.#key(key), this.#named()));
    this.#emptied.delete(key);
  }

  /**
   * Forgets all keys of this store. Only one that counts in this process can: elsewhere others count too, and keys expire.
   *
   * @throws PolylimitError `invalid_argument` for a limiter that counts on this host or in Redis
   */
  async resetAll(): Promise<void> {
    if (!isOfProcess(this.#limiter)) {
      throw invalidArgument("resetAll needs a store in this process, memory: use resetKey, or another prefix");
    }
    // What was counted under the former keys expires.
    this.#generation += 1;
    this.#emptied.clear();
  }

  /** Closes the limiter if it was made here. */
  shutdown(): void {
    if (this.#isOwn) this.#limiter.close();
  }

  #key(key: string): string {
    const own = this.prefix + key;
    return this.#generation === 0 ? own : `\0${this.#generation}\0${own}`;
  }

  #named(): string {
    if (this.#refusal !== undefined) throw this.#refusal;
    if (this.#policy === undefined) this.init({ windowMs: USUAL_WINDOW_MS });
    return this.#policy as string;
  }
}

/** How many stores a limiter counts for. */
const stores = new WeakMap<Limiter, number>();

/** Keys whose last count was given back: they are known, though nothing is counted of them. The newest of them. */
class Emptied {
  readonly #keys = new Set<string>();

  add(key: string): void {
    this.#keys.delete(key);
    this.#keys.add(key);
    if (this.#keys.size <= MOST_EMPTIED) return;
    for (const oldest of this.#keys) {
      this.#keys.delete(oldest);
      break;
    }
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  delete(key: string): void {
    this.#keys.delete(key);
  }

  clear(): void {
    this.#keys.clear();
  }
}

const MOST_EMPTIED = 10_000;

/** What denies in place of the store knows nothing of a client. */
function answered<Answer extends Decision | Usage>(answer: Answer): Answer {
  if (answer.source === "deny") {
    throw new PolylimitError("store_unavailable", `the store cannot be asked: ${answer.degraded}`);
  }
  return answer;
}

/** The limit is that of what has decided: what counts in place of the store may have a share of it. */
function hits({ limit, remaining, resetAfterMs }: Decision): ClientRateLimitInfo {
  return { totalHits: limit - remaining, resetTime: new Date(Date.now() + resetAfterMs) };
}
