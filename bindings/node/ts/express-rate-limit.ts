/** A store for express-rate-limit, which replaces one of its own stores by a change of one line. */

import type { ClientRateLimitInfo, Options, Store } from "express-rate-limit";

import { checkedOptions, number, text } from "./arguments";
import type { Decision, Usage } from "./decision";
import { invalidArgument, PolylimitError } from "./errors";
import { Limiter } from "./limiter";
import { countsInProcess } from "./native_limiters";
import { Quota } from "./policy";

/** The options of the store. */
export interface PolylimitStoreOptions {
  /**
   * The limiter that counts, or the URL from which to make one. `shutdown` closes a limiter that was made here, and leaves
   * any other open.
   */
  readonly limiter: Limiter | string;
  /** The prefix of every key, so that several limits of express-rate-limit have budgets of their own. */
  readonly prefix?: string;
}

/** The limit of the quota that counts. The real limit belongs to express-rate-limit, which applies it. */
const MAX_LIMIT = 1_000_000_000_000;

/** The default window of express-rate-limit, for a store that is used without `init`. */
const DEFAULT_WINDOW_MS = 60_000;

/**
 * Counts like express-rate-limit's own stores: in windows that start with a client's first request, and past the limit. It
 * fails when no decision can be made, or when the outage policy denies; express-rate-limit's `passOnStoreError` decides about
 * the request then. With the outage policy `fallback` each process admits the whole limit, and `fallbackShare` has no
 * effect, because a store does not know the limit.
 */
export class PolylimitStore implements Store {
  readonly prefix: string;
  readonly #limiter: Limiter;
  readonly #isOwn: boolean;
  #policy: string | undefined;
  /** The error with which `init` has refused the window. */
  #initError: unknown;
  readonly #emptied = new EmptiedKeys();
  /** The number of calls of `resetAll`, which is part of the keys. */
  #generation = 0;

  /** @throws PolylimitError `invalid_argument` with the name of the option */
  constructor(options: PolylimitStoreOptions) {
    const { limiter, prefix = "" } = checkedOptions("options", options, ["limiter", "prefix"], "guard");
    this.prefix = text("prefix", prefix, "text");
    this.#isOwn = !(limiter instanceof Limiter);
    this.#limiter = limiter instanceof Limiter ? limiter : new Limiter(limiter);
    stores.set(this.#limiter, (stores.get(this.#limiter) ?? 0) + 1);
  }

  /**
   * Whether no other store can have the same keys: this is the only store of a limiter in this process's memory. By this
   * property express-rate-limit detects that a request is counted twice.
   */
  get localKeys(): boolean {
    return countsInProcess(this.#limiter) && stores.get(this.#limiter) === 1;
  }

  /**
   * Called by express-rate-limit with its options. Without this call the default window holds.
   *
   * @throws PolylimitError `invalid_argument` for a window outside of 1 ms to 366 days
   */
  init({ windowMs }: Pick<Options, "windowMs">): void {
    try {
      number("windowMs", windowMs, "a number of milliseconds, 1 to 366 days");
      const quota = new Quota(MAX_LIMIT, windowMs, { algorithm: "fixed_window" });
      this.#policy = this.#limiter.policyFor(quota.text).name;
      this.#initError = undefined;
    } catch (error) {
      this.#initError = error;
      throw error;
    }
  }

  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const decision = requireCount(await this.#limiter.peek(this.#key(key), this.#policyName()));
    return decision.resetAfterMs === 0 && !this.#emptied.has(key) ? undefined : hits(decision);
  }

  async increment(key: string): Promise<ClientRateLimitInfo> {
    const counted = hits(requireCount(await this.#limiter.check(this.#key(key), this.#policyName())));
    // The outage policy `allow` counts nothing, but express-rate-limit requires at least this request in the count.
    return { ...counted, totalHits: Math.max(counted.totalHits, 1) };
  }

  async decrement(key: string): Promise<void> {
    const { resetAfterMs } = requireCount(await this.#limiter.refund(this.#key(key), this.#policyName()));
    if (resetAfterMs === 0) this.#emptied.add(key);
  }

  /**
   * Deletes the state of a key. express-rate-limit reads this property right after it has called `init`, whose error it only
   * logs. So the getter throws that error again: a limit with an invalid window fails when it is created.
   *
   * @throws PolylimitError `invalid_argument` if `init` has refused the window
   */
  get resetKey(): (key: string) => Promise<void> {
    if (this.#initError !== undefined) throw this.#initError;
    return this.#resetKey;
  }

  async #resetKey(key: string): Promise<void> {
    requireCount(await this.#limiter.reset(this.#key(key), this.#policyName()));
    this.#emptied.delete(key);
  }

  /**
   * Deletes all keys of this store. Only a store in this process's memory can: any other is shared with other processes.
   *
   * @throws PolylimitError `invalid_argument` for a limiter on `local:` or Redis
   */
  async resetAll(): Promise<void> {
    if (!countsInProcess(this.#limiter)) {
      throw invalidArgument("resetAll needs a store in this process, memory: use resetKey, or another prefix");
    }
    // The old keys are not used again, and expire.
    this.#generation += 1;
    this.#emptied.clear();
  }

  /** Closes the limiter if this store made it. */
  shutdown(): void {
    if (this.#isOwn) this.#limiter.close();
  }

  #key(key: string): string {
    const own = this.prefix + key;
    return this.#generation === 0 ? own : `\0${this.#generation}\0${own}`;
  }

  #policyName(): string {
    if (this.#initError !== undefined) throw this.#initError;
    if (this.#policy === undefined) this.init({ windowMs: DEFAULT_WINDOW_MS });
    return this.#policy as string;
  }
}

/** The number of stores of each limiter. */
const stores = new WeakMap<Limiter, number>();

/** The most recent keys whose last hit was refunded: express-rate-limit still knows them, with a count of zero. */
class EmptiedKeys {
  readonly #keys = new Set<string>();

  add(key: string): void {
    this.#keys.delete(key);
    this.#keys.add(key);
    if (this.#keys.size <= MAX_EMPTIED) return;
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

const MAX_EMPTIED = 10_000;

/** Fails for an answer of the outage policy `deny`, which has no count. */
function requireCount<Answer extends Decision | Usage>(answer: Answer): Answer {
  if (answer.source === "deny") {
    throw new PolylimitError("store_unavailable", `the store is unavailable: ${answer.degraded}`);
  }
  return answer;
}

/** Uses the limit of the decision itself, because the fallback's limit may be only a share of the quota's. */
function hits({ limit, remaining, resetAfterMs }: Decision): ClientRateLimitInfo {
  return { totalHits: limit - remaining, resetTime: new Date(Date.now() + resetAfterMs) };
}
