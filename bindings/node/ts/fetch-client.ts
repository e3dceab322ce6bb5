/** A `fetch` that stays within a limit of your own and waits as servers demand. The rules are those of docs/clients.md. */

import { setTimeout as sleep } from "node:timers/promises";

import { checkedOptions, type Key, keyOf, notAllowed, optionalFunction } from "./arguments";
import { Backoff, fieldsOf, nativeBackoff } from "./backoff";
import { callNative, ownMessage } from "./errors";
import { Limiter } from "./limiter";
import { native } from "./native";
import { costOf, policyOf } from "./options";
import type { Quota } from "./policy";

export interface FetchClientOptions {
  /** The limiter that every attempt acquires from. */
  readonly limiter: Limiter;
  /** Its policy, or quotas; not needed if the limiter has exactly one policy. */
  readonly policy?: string | Quota;
  /** Returns the key of a request; the default is its host, with the port unless it is the scheme's own. */
  readonly key?: (request: Request) => Key;
  /** The units of each attempt; 1 by default. */
  readonly cost?: number;
  /** How often and how long a request may wait; `maxWaitMs` bounds all of its waits. */
  readonly backoff?: Backoff;
  /** Sends the requests; the default is the global `fetch`. */
  readonly fetch?: typeof globalThis.fetch;
}

const NAMES = ["limiter", "policy", "key", "cost", "backoff", "fetch"];

/** Node's longest timer; after it the core is asked again. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A request was not sent, because it would have to wait for too long. */
export class ThrottledError extends Error {
  /** The whole milliseconds after which the request would be sent; `undefined` if the limiter never admits it. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, retryAfterMs: number | undefined) {
    super(message);
    this.name = "ThrottledError";
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * Creates a function with the parameters of `fetch`. It rejects with a `ThrottledError` when a request would have to wait for more
 * than `maxWaitMs` of the backoff, with a `PolylimitError` when the limiter cannot decide, and with the reason of the request's
 * signal when that aborts it. A request with a body is tried again where the body is text, bytes, a `Blob`, a form or parameters that
 * were passed to the function itself: a stream, which the body of a `Request` is too, can be sent only once.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function createFetch(options: FetchClientOptions): typeof globalThis.fetch {
  const { limiter, backoff } = checkedOptions("options", options, NAMES, "guard");
  if (!(limiter instanceof Limiter)) throw notAllowed("limiter", limiter, "a Limiter");
  if (backoff !== undefined && !(backoff instanceof Backoff)) throw notAllowed("backoff", backoff, "a Backoff");
  const keyOfRequest = optionalFunction("key", options.key) ?? ((request: Request) => new URL(request.url).host);
  const send = optionalFunction("fetch", options.fetch) ?? globalThis.fetch;
  const [policy, cost] = [policyOf(options), costOf(options)];
  limiter.policyFor(policy);
  const throttle = callNative(() => new native.NativeThrottle(backoff && nativeBackoff(backoff), cost));

  return async (input, init) => {
    const request = new Request(input, init);
    const { signal } = request;
    const key = keyOf(keyOfRequest(request), "the result of key");
    const replayable = request.body === null || isReplayable(init?.body);
    const attempts = callNative(() => throttle.start(key, request.method, replayable));
    for (let isFirst = true; ; ) {
      const { kind, ms, message } = attempts.step();
      if (kind === "wait") {
        await sleep(Math.min(ms ?? 0, LONGEST_TIMER_MS), undefined, { signal }).catch((thrown) => {
          throw signal.aborted ? signal.reason : thrown;
        });
      } else if (kind === "acquire") {
        const { allowed, retryAfterUs } = await limiter.acquire(key, { policy, cost, timeoutMs: ms ?? 0, signal });
        attempts.acquired(allowed, retryAfterUs ?? undefined);
      } else if (kind === "send") {
        const response = await send(isFirst ? request : new Request(input, init));
        isFirst = false;
        if (!attempts.responded(response.status, fieldsOf(response.headers))) return response;
        await response.body?.cancel();
      } else {
        throw new ThrottledError(ownMessage(message ?? ""), ms);
      }
    }
  };
}

/** Whether a body can be read again from what the caller gave; a stream is read once. */
function isReplayable(body: unknown): boolean {
  if (typeof body === "string" || ArrayBuffer.isView(body)) return true;
  return [ArrayBuffer, Blob, FormData, URLSearchParams].some((type) => body instanceof type);
}
