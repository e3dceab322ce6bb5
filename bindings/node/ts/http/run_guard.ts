/** Runs a guard in a framework whose middleware calls `next`, and finds out when a response has ended. */

import type { ServerResponse } from "node:http";

import { invalidArgument } from "../errors";
import type { Guard, GuardResult } from "./guard";
import { isPromise } from "./options";

/** Applies the result of a guard to a response. Returns whether the request proceeds. */
export type ApplyResult<Context extends unknown[]> = (
  result: GuardResult<unknown> | undefined,
  ...context: Context
) => boolean | Promise<boolean>;

/**
 * Has a guard decide, and calls `next` when the request proceeds or an error occurs. It creates no promise when the decision
 * is available at once.
 */
export function runGuard<Context extends unknown[], Finished extends unknown[]>(
  guard: Guard<Context, Finished, unknown>,
  previous: unknown,
  context: Context,
  apply: ApplyResult<Context>,
  next: (error?: never) => void,
): void {
  let proceeds: boolean | Promise<boolean>;
  try {
    const result = guard.decide(previous, context);
    proceeds = isPromise(result) ? applyLater(result, context, apply) : apply(result, ...context);
  } catch (error) {
    next(errorFor(error));
    return;
  }
  if (typeof proceeds === "boolean") {
    if (proceeds) next();
  } else {
    proceeds.then(
      (value) => {
        if (value) next();
      },
      (error) => next(errorFor(error)),
    );
  }
}

/** A value that `next` treats as an error. With a falsy one the request would proceed without a decision. */
function errorFor(thrown: unknown): never {
  return (thrown || invalidArgument("a function of the rate limit's options failed without an error")) as never;
}

async function applyLater<Context extends unknown[]>(
  result: PromiseLike<GuardResult<unknown> | undefined>,
  context: Context,
  apply: ApplyResult<Context>,
): Promise<boolean> {
  return apply(await result, ...context);
}

/** The properties of Node's response (HTTP/1 or HTTP/2) that are used here. */
type ResponseEvents = Pick<ServerResponse, "once" | "headersSent">;

/**
 * Calls back once when a response has ended, unless the client left before there was an answer: an HTTP/2 response then
 * emits `finish` with a status that no handler has set.
 */
export function onResponseEnd(response: ResponseEvents, callback: () => void): void {
  let hasEnded = false;
  const end = () => {
    if (hasEnded) return;
    hasEnded = true;
    if (response.headersSent) callback();
  };
  response.once("finish", end);
  // The only event when the client leaves in the middle of the response.
  response.once("close", end);
}
