/** The one error class, and the one conversion into it. */

import { types } from "node:util";

import type { ErrorCode } from "./tables";

/** No decision could be made. A denial is not an error: it is a `Decision`. */
export class PolylimitError extends Error {
  /**
   * What kind of error it is, the same in every language: `invalid_argument` (trying again fails again),
   * `store_unavailable` (trying again later may succeed), `store_failed`, `closed`, `internal` (a defect in polylimit).
   */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "PolylimitError";
    this.code = code;
  }
}

/**
 * What the addon threw, as the public error with the stack of the caller. The addon makes its errors in the realm of the main
 * context: in another one, as of Jest's tests, they are not even instances of `Error`.
 */
export function failure(thrown: unknown): unknown {
  if (types.isNativeError(thrown) && !(thrown instanceof PolylimitError)) {
    const { code } = thrown as { code?: unknown };
    if (typeof code === "string" && isErrorCode(code)) return new PolylimitError(code, thrown.message);
  }
  return thrown;
}

/** What a method failed with that may have been called without its object, on which all it does depends. */
export function failureOf(isOwn: boolean, name: string, thrown: unknown): unknown {
  if (isOwn) return failure(thrown);
  const message = `a method of ${name} was called without its object: call it on the object, or bind it to that first`;
  return new PolylimitError("invalid_argument", message);
}

/** Calls the addon. */
export function calling<T>(body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    throw failure(thrown);
  }
}

let codes: ReadonlySet<string> = new Set();

/** Tells which codes there are, once the addon is there to say so. */
export function setErrorCodes(known: readonly string[]): void {
  codes = new Set(known);
}

function isErrorCode(code: string): code is ErrorCode {
  return codes.has(code);
}
