/** The one error class, and the one conversion into it. */

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

/** What the addon threw, as the public error with the stack of the caller. */
export function failure(thrown: unknown): unknown {
  if (thrown instanceof Error && !(thrown instanceof PolylimitError)) {
    const { code } = thrown as { code?: unknown };
    if (typeof code === "string" && isErrorCode(code)) return new PolylimitError(code, thrown.message);
  }
  return thrown;
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
