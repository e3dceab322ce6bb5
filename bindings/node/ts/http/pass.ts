/** How a request passes middleware that calls `next`: without a promise where nothing has to be waited for. */

import type { Guard, Verdict } from "./guard";
import { isPromise } from "./maybe_promise";

/** Applies a verdict to a response, and says whether the request goes on. */
export type Apply<Context extends unknown[]> = (
  verdict: Verdict<unknown> | undefined,
  ...context: Context
) => boolean | Promise<boolean>;

/** Has a guard decide, and calls `next` when the request goes on or there is an error. */
export function pass<Context extends unknown[], Finished extends unknown[]>(
  guard: Guard<Context, Finished, unknown>,
  before: unknown,
  context: Context,
  apply: Apply<Context>,
  next: (error?: never) => void,
): void {
  let passed: boolean | Promise<boolean>;
  try {
    const verdict = guard.decide(before, context);
    passed = isPromise(verdict) ? applyLater(verdict, context, apply) : apply(verdict, ...context);
  } catch (error) {
    next(error as never);
    return;
  }
  if (typeof passed === "boolean") {
    if (passed) next();
  } else {
    passed.then(
      (goesOn) => {
        if (goesOn) next();
      },
      next as (error: unknown) => void,
    );
  }
}

async function applyLater<Context extends unknown[]>(
  verdict: PromiseLike<Verdict<unknown> | undefined>,
  context: Context,
  apply: Apply<Context>,
): Promise<boolean> {
  return apply(await verdict, ...context);
}
