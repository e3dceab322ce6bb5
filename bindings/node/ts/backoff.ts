/** For clients of limited services: the wait that a response asks for, and when to try again. */

import type { NativeBackoff } from "./addon";
import { checkedOptions, notAllowed, number } from "./arguments";
import { callNative, methodError } from "./errors";
import { native } from "./native";

const natives = new WeakMap<Backoff, NativeBackoff>();

export interface BackoffOptions {
  /** The longest wait before the first retry, in milliseconds: 1 to `capMs`; 100 by default. */
  readonly baseMs?: number;
  /** Where the doubling ends, in milliseconds: `baseMs` to a day; 20,000 by default. */
  readonly capMs?: number;
  /** The longest wait that a server may ask for, in milliseconds: 0 to 366 days; 5 minutes by default. */
  readonly maxWaitMs?: number;
  /** How many retries may follow the first try; 5 by default. */
  readonly maxRetries?: number;
}

/**
 * When the client of a limited service tries again, and when it gives up: exponential backoff with full jitter. The wait before
 * retry n, counted from 0, is random from 0 to the smaller of `capMs` and `baseMs * 2 ** n`. A wait that the server asks for is
 * added to it.
 */
export class Backoff {
  /** @throws PolylimitError `invalid_argument` when a setting is out of its range */
  constructor(options: BackoffOptions = {}) {
    checkedOptions("options", options, ["baseMs", "capMs", "maxWaitMs", "maxRetries"]);
    for (const [name, value] of Object.entries(options)) if (value !== undefined) number(name, value, "a number");
    natives.set(
      this,
      callNative(() => new native.NativeBackoff(options)),
    );
  }

  /**
   * How many whole milliseconds to wait before the next try; `undefined` to give up: once `maxRetries` retries were made, and when
   * the server asks for more than `maxWaitMs`.
   *
   * @param retry how many retries were made before: 0 after the first failure
   * @param serverWaitMs what the last response asked for, as read by `serverWaitMs`
   */
  waitMs(retry: number, serverWaitMs?: number): number | undefined {
    number("retry", retry, "a whole number from 0 up");
    if (serverWaitMs !== undefined) number("serverWaitMs", serverWaitMs, "a number of milliseconds");
    return callNative(() => nativeBackoff(this).wait(retry, serverWaitMs)) ?? undefined;
  }
}

export function nativeBackoff(backoff: Backoff): NativeBackoff {
  const found = natives.get(backoff);
  if (found === undefined) throw methodError(false, "Backoff", undefined);
  return found;
}

/** What `serverWaitMs` reads: the values of the fields, as `Headers.get` returns them. */
export interface WaitFields {
  /** `Retry-After`: seconds or a date. */
  readonly retryAfter?: string | null;
  /** `RateLimit`, with all its lines joined by a comma. */
  readonly rateLimit?: string | null;
  /** The time with which a date is compared, in microseconds since the Unix epoch; the system's time by default. */
  readonly nowUs?: number;
}

/**
 * How many whole milliseconds, rounded up, a response asks its client to wait, counted from now; `undefined` if it does not say. The
 * fields are those of the response, `serverWaitMs(response.headers)`, or their values. `Retry-After` has
 * precedence where it is well-formed; otherwise the longest time of the policies in `RateLimit` that have nothing left counts. A
 * malformed field is ignored, and a wait above 285 years is cut to that.
 *
 * @throws PolylimitError `invalid_argument` for a value of another type
 */
export function serverWaitMs(fields: WaitFields | Pick<Headers, "get">): number | undefined {
  if (isHeaders(fields))
    return serverWaitMs({ retryAfter: fields.get("retry-after"), rateLimit: fields.get("ratelimit") });
  checkedOptions("fields", fields, ["retryAfter", "rateLimit", "nowUs"]);
  const [retryAfter, rateLimit] = [fields.retryAfter ?? undefined, fields.rateLimit ?? undefined];
  for (const [name, value] of Object.entries({ retryAfter, rateLimit })) {
    if (value !== undefined && typeof value !== "string") throw notAllowed(name, value, "a string");
  }
  if (fields.nowUs !== undefined) number("nowUs", fields.nowUs, "a number of microseconds since the Unix epoch");
  return callNative(() => native.serverWait(retryAfter, rateLimit, fields.nowUs)) ?? undefined;
}

/** Whether the fields are the `Headers` of a response, of any implementation. */
function isHeaders(fields: WaitFields | Pick<Headers, "get">): fields is Pick<Headers, "get"> {
  return Object.prototype.toString.call(fields) === "[object Headers]";
}
