/** How a request passes middleware that calls `next`: without a promise where nothing has to be waited for. */

import { invalidArgument } from "../argument";
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
    next(reason(error));
    return;
  }
  if (typeof passed === "boolean") {
    if (passed) next();
  } else {
    passed.then(
      (goesOn) => {
        if (goesOn) next();
      },
      (error) => next(reason(error)),
    );
  }
}

/** What `next` takes for an error: without one, the request would go on undecided. */
function reason(thrown: unknown): never {
  return (thrown || invalidArgument("a function of the rate limit's options failed without an error")) as never;
}

async function applyLater<Context extends unknown[]>(
  verdict: PromiseLike<Verdict<unknown> | undefined>,
  context: Context,
  apply: Apply<Context>,
): Promise<boolean> {
  return apply(await verdict, ...context);
}
