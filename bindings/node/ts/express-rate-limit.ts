/** A store for express-rate-limit: its users switch by changing one line. */

import type { ClientRateLimitInfo, Options, Store } from "express-rate-limit";

import { invalidArgument, known, text } from "./argument";
import type { Decision, Usage } from "./decision";
import { PolylimitError } from "./failure";
import { Limiter } from "./limiter";

/** What the store counts with. */
export interface PolylimitStoreOptions {
  /**
   * The limiter that counts, or the URL of a store to make one for. That one is closed by `shutdown`; one that was given is
   * left to whoever made it.
   */
  readonly limiter: Limiter | string;
  /** What every key begins with, so that several of express-rate-limit's limits do not count together. */
  readonly prefix?: string;
}

/** It counts up to here; the limit is express-rate-limit's own and is applied there. */
const LARGEST = 1_000_000_000_000;

/**
 * Counts as express-rate-limit's own stores do: in windows that start with a client's first request, whatever the limit.
 * Requests over the limit are counted too. When no decision can be made, or the policy in place of the store denies, it
 * fails, and `passOnStoreError` says what then. Where each process counts by itself in place of the store, it admits the
 * whole limit, whatever `localShare` says: the limit is not told here.
 */
export class PolylimitStore implements Store {
  readonly prefix: string;
  readonly #limiter: Limiter;
  readonly #isOwn: boolean;
  #policy = "";

  /** @throws PolylimitError `invalid_argument` with the name of the option */
  constructor(options: PolylimitStoreOptions) {
    const { limiter, prefix = "" } = known("options", options, ["limiter", "prefix"]);
    this.prefix = text("prefix", prefix, "text");
    this.#isOwn = !(limiter instanceof Limiter);
    this.#limiter = limiter instanceof Limiter ? limiter : new Limiter(limiter);
  }

  /** Called by express-rate-limit with its options. */
  init({ windowMs }: Options): void {
    this.#policy = `${LARGEST}/${windowMs}ms fixed_window`;
  }

  async get(key: string): Promise<ClientRateLimitInfo | undefined> {
    const decision = answered(await this.#limiter.peek(this.#key(key), this.#named()));
    return decision.resetAfterMs === 0 ? undefined : hits(decision);
  }

  async increment(key: string): Promise<ClientRateLimitInfo> {
    const counted = hits(answered(await this.#limiter.check(this.#key(key), this.#named())));
    // Where an outage admits everything, nothing is counted; express-rate-limit wants to hear of the request all the same.
    return { ...counted, totalHits: Math.max(counted.totalHits, 1) };
  }

  async decrement(key: string): Promise<void> {
    answered(await this.#limiter.refund(this.#key(key), this.#named()));
  }

  async resetKey(key: string): Promise<void> {
    answered(await this.#limiter.reset(this.#key(key), this.#named()));
  }

  /** Closes the limiter if it was made here. */
  shutdown(): void {
    if (this.#isOwn) this.#limiter.close();
  }

  #key(key: string): string {
    return this.prefix + key;
  }

  #named(): string {
    if (this.#policy === "") throw invalidArgument("the store has no window yet: hand it to rateLimit first");
    return this.#policy;
  }
}

/** What denies in place of the store knows nothing of a client. */
function answered<Answer extends Decision | Usage>(answer: Answer): Answer {
  if (answer.source === "deny") {
    throw new PolylimitError("store_unavailable", `the store cannot be asked: ${answer.degraded}`);
  }
  return answer;
}

/** The limit is that of who has decided: what counts in place of the store may have a share of it. */
function hits({ limit, remaining, resetAfterMs }: Decision): ClientRateLimitInfo {
  return { totalHits: limit - remaining, resetTime: new Date(Date.now() + resetAfterMs) };
}
