/** The error class, and how errors of the module become errors of it. */

import type { ErrorCode } from "./tables.js";

/** No decision could be made. A denial is not an error: it is a `Decision`. */
export class PolylimitError extends Error {
  /** The kind of the error, the same in every language. */
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.name = "PolylimitError";
    this.code = code;
  }
}

/** Calls the module, which throws a code and a message. */
export function call<T>(body: () => T): T {
  try {
    return body();
  } catch (thrown) {
    throw publicError(thrown);
  }
}

/** The error of a code and a message; any other value as it is. */
export function publicError(thrown: unknown): unknown {
  return Array.isArray(thrown) ? new PolylimitError(thrown[0], ownNames(thrown[1])) : thrown;
}

/** A message of the core with the names of options as this package has them. Those of a document are the same in every language. */
function ownNames(message: string): string {
  if (/^(store URL|line )/.test(message)) return message;
  return message.replace(/\b(?:max_keys|observe_keys|set_document)\b/g, camelCase);
}

/** A name of the core, such as `max_keys`, in the style of JavaScript. */
export function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

export function notAllowed(name: string, allowed: string): PolylimitError {
  return new PolylimitError("invalid_argument", `${name} is not allowed: allowed is ${allowed}`);
}
