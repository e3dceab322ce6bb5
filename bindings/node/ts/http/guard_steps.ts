/** Steps of guards that may have to wait, and errors that no caller receives. */

import { Field, type NativeCheck } from "../addon";
import { toPublicError } from "../errors";
import { pendingAnswer, fields as sharedFields } from "../exchange";
import { isPromise, type MaybePromise } from "./options";

const fields = sharedFields;

/** A value, or a promise of it, and what follows. */
export function after<T, R>(value: MaybePromise<T>, then: (value: T) => MaybePromise<R>): MaybePromise<R> {
  return isPromise(value) ? value.then(then) : then(value);
}

/** Makes the calls that give units back. One that fails leaves its units spent, and emits a warning of the process. */
export function settle(check: NativeCheck): MaybePromise<void> {
  try {
    check.settle();
  } catch (thrown) {
    warn(toPublicError(thrown));
  }
  if (fields[Field.Ticket] === 0) return undefined;
  return pendingAnswer(() => undefined)
    .catch(warn)
    .then(() => settle(check));
}

/** Emits an error as a warning of the process, where no caller is left to receive it. */
export function warn(error: unknown): void {
  try {
    process.emitWarning(error as Error);
  } catch {
    // The process accepts only instances of its own realm's `Error`, and strings.
    process.emitWarning(String(error));
  }
}
