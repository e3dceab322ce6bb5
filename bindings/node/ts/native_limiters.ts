/** The addon's side of limiters, and the operations that are not on a single key. */

import type { NativeLimiter } from "./addon";
import { notAllowed } from "./arguments";
import { methodError } from "./errors";
import { answerOf } from "./exchange";

const natives = new WeakMap<object, NativeLimiter>();
const inProcess = new WeakSet<object>();

export function registerNative(limiter: object, native: NativeLimiter, url: string): void {
  natives.set(limiter, native);
  if (url.startsWith("memory:")) inProcess.add(limiter);
}

/** Whether a limiter counts in the memory of this process. */
export function countsInProcess(limiter: object): boolean {
  return inProcess.has(limiter);
}

/** The addon's side of a limiter that is the value of an option. */
export function nativeLimiter(limiter: object): NativeLimiter {
  const found = natives.get(limiter);
  if (found === undefined) throw notAllowed("limiter", limiter, "a Limiter");
  return found;
}

/** The addon's side of a method's limiter. */
export function nativeOf(limiter: object): NativeLimiter {
  const found = natives.get(limiter);
  if (found === undefined) throw methodError(false, "Limiter", undefined);
  return found;
}

/** The public form of an error that a method of a limiter has caught. */
export function limiterError(limiter: object, thrown: unknown): unknown {
  return methodError(natives.has(limiter), "Limiter", thrown);
}

/** Starts an operation with a method of the addon, and reads its answer. */
export function operateAll<T>(limiter: object, start: (native: NativeLimiter) => void, read: () => T): Promise<T> {
  try {
    start(nativeOf(limiter));
    return answerOf(read);
  } catch (thrown) {
    return Promise.reject(limiterError(limiter, thrown));
  }
}
