/** Middleware for Hono. */

import type { Context, MiddlewareHandler } from "hono";

import { invalidArgument, optionalFunction } from "./argument";
import { denied } from "./fetch";
import { addressFrom } from "./http/address";
import { Guard } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";

export type { Denial, OutageEvent, RateLimit } from "./http/options";

declare module "hono" {
  interface ContextVariableMap {
    /** What was decided about the request; `undefined` when it was skipped. */
    rateLimit: RateLimit | undefined;
  }
}

export interface HonoOptions
  extends RateLimitOptions<[context: Context], [context: Context], Response | Promise<Response>> {
  /** The address at the other end of the socket. Where Hono runs on Node it is found; elsewhere it or `key` is needed. */
  readonly peer?: (context: Context) => string | undefined;
}

/**
 * Limits the requests that pass through it; `c.get("rateLimit")` is the decision.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit(options: HonoOptions): MiddlewareHandler {
  const { peer = peerOnNode, onDenied } = checkOptions(options, ["peer"]);
  optionalFunction("peer", peer);
  const guard = new Guard(options, (rules, context: Context) =>
    addressFrom(rules, peer(context), (header) => context.req.header(header)),
  );
  return async (context, next) => {
    const verdict = await guard.decide(context.req.raw, context);
    context.set("rateLimit", verdict?.rateLimit);
    if (verdict === undefined) return next();
    const { problem, rateLimit, fields } = verdict;
    if (problem !== undefined) {
      if (onDenied === undefined) return denied(verdict, context.req.header("accept"));
      for (const [name, value] of fields) context.header(name, value);
      return onDenied({ rateLimit: rateLimit as RateLimit, status: problem.status, problem, fields }, context);
    }
    await next();
    for (const [name, value] of fields) context.res.headers.set(name, value);
    if (guard.waitsForResponse) await guard.finish(verdict, [context], context);
    return undefined;
  };
}

/** Where @hono/node-server keeps the socket. */
function peerOnNode({ env }: Context): string | undefined {
  const { incoming } = (env ?? {}) as { incoming?: { socket?: { remoteAddress?: string } } };
  if (incoming?.socket === undefined) {
    throw invalidArgument("neither key nor peer is given: this server does not tell whose a request is");
  }
  return incoming.socket.remoteAddress;
}
