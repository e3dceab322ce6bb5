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

/**
 * The header fields of a response: `response.headers` of fetch, of `node:http` and of its peers, an object, or pairs of a name,
 * in any letter case, and a value.
 */
export type ResponseHeaders =
  | Iterable<readonly [string, string]>
  | { readonly [name: string]: string | readonly string[] | undefined };

export interface ServerWaitOptions {
  /**
   * The time with which a date is compared if the response has none, in microseconds since the Unix epoch; the system's time by
   * default.
   */
  readonly nowUs?: number;
}

/**
 * How many whole milliseconds, rounded up, a response asks its client to wait, counted from now; `undefined` if it does not say:
 * `serverWaitMs(response.headers)`. The fields that are read, in their order: `Retry-After-Ms`, `Retry-After`, whose date is
 * compared with that of `Date`, and the policies of `RateLimit` that have nothing left, of which the longest time counts. A
 * malformed field is ignored, and a wait above 285 years is cut to that.
 *
 * @throws PolylimitError `invalid_argument` for a value of another type
 */
export function serverWaitMs(headers: ResponseHeaders, options: ServerWaitOptions = {}): number | undefined {
  checkedOptions("options", options, ["nowUs"]);
  if (options.nowUs !== undefined) number("nowUs", options.nowUs, "a number of microseconds since the Unix epoch");
  const fields = fieldsOf(headers);
  return callNative(() => native.serverWait(fields, options.nowUs)) ?? undefined;
}

/** The name of each field, followed by its value. */
export function fieldsOf(headers: ResponseHeaders): string[] {
  if (typeof headers !== "object" || headers === null) throw notAllowed("headers", headers, HEADERS);
  const pairs = isIterable(headers) ? headers : Object.entries(headers);
  const fields: string[] = [];
  for (const pair of pairs) {
    if (!Array.isArray(pair)) throw notAllowed("headers", pair, HEADERS);
    const [name, lines] = pair;
    for (const line of Array.isArray(lines) ? lines : [lines]) {
      // An object may have a name without a value.
      if (line === undefined) continue;
      if (typeof line !== "string") throw notAllowed(`headers[${JSON.stringify(name)}]`, line, "a string");
      fields.push(String(name), line);
    }
  }
  return fields;
}

const HEADERS = "the headers of a response, an object or pairs of names and values";

function isIterable(headers: ResponseHeaders): headers is Iterable<readonly [string, string]> {
  return Symbol.iterator in headers;
}
