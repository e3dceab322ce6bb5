/** The error class, and the conversion of the addon's errors into it. */

import { types } from "node:util";

import { camelCase } from "./names";
import { native, tables } from "./native";
import type { ErrorCode } from "./tables";

/** No decision could be made. A denial is not an error: it is a `Decision`. */
export class PolylimitError extends Error {
  /**
   * The kind of the error, the same in every language: `invalid_argument` (trying again fails again),
   * `store_unavailable` (trying again later may succeed), `store_failed`, `closed`, `internal` (a defect in polylimit).
   */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "PolylimitError";
    this.code = code;
  }
}

export function invalidArgument(message: string): PolylimitError {
  return new PolylimitError("invalid_argument", message);
}

/** The core's names of what has another name here, in its messages. */
const OWN_NAMES: ReadonlyMap<string, string> = new Map([
  ...native.limiterOptions().map(({ name }): [string, string] => [name, camelCase(name)]),
  ["set_document", "setDocument"],
  ["max_wait", "maxWaitMs"],
]);

/** A message of the core with the names of this package. Those of a store URL and of a document are the same in every language. */
export function ownMessage(message: string): string {
  if (/^(store URL|line )/.test(message)) return message;
  return message.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (name) => OWN_NAMES.get(name) ?? name);
}

const codes: ReadonlySet<string> = new Set(tables.errors.map(({ code }) => code));

/**
 * Converts an error of the addon to the public class, with the stack of the caller; returns any other value as it is. The
 * addon creates its errors in the realm of the main context: in another realm, such as that of a test of Jest, they are not
 * instances of `Error`.
 */
export function toPublicError(thrown: unknown): unknown {
  if (types.isNativeError(thrown) && !(thrown instanceof PolylimitError)) {
    const { code } = thrown as { code?: unknown };
    if (typeof code === "string" && codes.has(code))
      return new PolylimitError(code as ErrorCode, ownMessage(thrown.message));
  }
  return thrown;
}

/** The error of a method that may have been called without its object, in which case `isOwn` is false. */
export function methodError(isOwn: boolean, name: string, thrown: unknown): unknown {
  if (isOwn) return toPublicError(thrown);
  return invalidArgument(
    `a method of ${name} was called without its object: call it on the object, or bind it to that first`,
  );
}

/** Calls the addon, and converts its errors. */
export function callNative<T>(body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    throw toPublicError(thrown);
  }
}
