/** Runs a guard in a framework whose middleware calls `next`, and ends its check before Node sends the response's head. */

import type { IncomingMessage, ServerResponse } from "node:http";

import { invalidArgument } from "../errors";
import type { HeaderFields } from "../headers";
import type { Guard, GuardResult } from "./guard";
import { isPromise, type MaybePromise } from "./options";

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
  request: object,
  previous: unknown,
  context: Context,
  apply: ApplyResult<Context>,
  next: (error?: never) => void,
): void {
  let proceeds: boolean | Promise<boolean>;
  try {
    const result = guard.decide(request, previous, context);
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
type NodeResponse = Pick<ServerResponse, "destroyed" | "writeHead" | "setHeader" | "statusCode"> & {
  readonly stream?: { readonly destroyed: boolean };
};

/**
 * Calls `finish` when the status of the response is known and its fields are not sent yet. The fields that it returns are
 * sent. It is not called when the client left before there was a response: HTTP/2 then has a status that no handler has set.
 */
export function beforeHead(response: NodeResponse, finish: () => MaybePromise<HeaderFields | undefined>): void {
  const { writeHead } = response;
  response.writeHead = (...args: unknown[]) => {
    response.writeHead = writeHead;
    if (typeof args[0] === "number") response.statusCode = args[0];
    const isGone = response.destroyed || response.stream?.destroyed;
    const fields = isGone ? undefined : finish();
    if (fields !== undefined && !isPromise(fields)) {
      // The fields of the call, in an object, take precedence over those of the response.
      const last = args[args.length - 1];
      const given = typeof last === "object" && !Array.isArray(last) ? (last as Record<string, unknown>) : {};
      for (const [name, value] of fields) {
        if (name in given) given[name] = value;
        else response.setHeader(name, value);
      }
    }
    return (writeHead as (...args: unknown[]) => ServerResponse).apply(response, args);
  };
}

/** Sets the fields of a limit, and removes those that do not hold any more. */
export function setFields(
  response: Pick<ServerResponse, "setHeader" | "removeHeader">,
  { fields, outdated }: GuardResult<unknown>,
): void {
  for (const name of outdated) response.removeHeader(name);
  for (const field of fields) response.setHeader(field[0], field[1]);
}

/** The lines of a header of Node's request, joined. */
export function headerLine({ headers }: Pick<IncomingMessage, "headers">, name: string): string | undefined {
  const lines = headers[name];
  return Array.isArray(lines) ? lines.join(", ") : lines;
}

/** A `vary` field with another name. */
export function varyWith(vary: number | string | readonly string[] | undefined, name: string): string {
  return vary === undefined ? name : `${[vary].flat().join(", ")}, ${name}`;
}
