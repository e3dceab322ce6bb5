/** Middleware for Hono. */

import type { Context, MiddlewareHandler } from "hono";

import { invalidArgument, optionalFunction } from "./argument";
import { missing, refused, withFields } from "./fetch";
import { addressFrom, peerOf, type Socket } from "./http/address";
import { Guard } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";

export type { Denial, RateLimit } from "./http/options";

declare module "hono" {
  interface ContextVariableMap {
    /** What was decided about the request, by the last that did not skip it; `undefined` when all did. */
    rateLimit: RateLimit | undefined;
  }
}

export interface HonoOptions
  extends RateLimitOptions<[context: Context], [context: Context], Response | Promise<Response>> {
  /** The address at the other end of the socket. Where Hono runs on Node it is found; elsewhere it or `key` is needed. */
  readonly peer?: (context: Context) => string | undefined;
}

/**
 * Limits the requests that pass through it; `c.get("rateLimit")` is the decision. An `onDenied` or `onOutage` that gives no
 * response leaves it at the usual one. Quotas without a name that are given at a route, as in
 * `app.get(path, rateLimit(...), handler)`, belong to that route; with `app.use` for several paths (`*`), to the limiter.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit(options: HonoOptions): MiddlewareHandler {
  const { peer = options.key === undefined ? peerOnNode : peerIfKnown } = checkOptions(options, ["peer"]);
  optionalFunction("peer", peer);
  const guard = new Guard(options, {
    clientOf: (rules, context: Context) => addressFrom(rules, peer(context), (header) => context.req.header(header)),
    acceptOf: (context) => context.req.header("accept"),
    routeOf,
  });
  return async (context, next) => {
    const verdict = await guard.decide(context.get("rateLimit"), [context]);
    if (verdict === undefined) return next();
    context.set("rateLimit", verdict.rateLimit);
    const { fields, refusal, instead } = verdict;
    if (instead !== undefined) {
      for (const [name, value] of fields) context.header(name, value);
      const own: Response | undefined = await instead();
      if (own !== undefined || context.finalized) return own;
    }
    if (refusal !== undefined) return refused(refusal, fields);
    await next();
    const { res } = context;
    const told = withFields(res, context.get("rateLimit") === verdict.rateLimit ? fields : missing(res, fields));
    if (told !== res) {
      // Otherwise the fields of the former would be added to it.
      context.res = undefined;
      context.res = told;
    }
    if (guard.waitsForResponse) await guard.finish(verdict, context);
    return undefined;
  };
}

/** The method and the path that the middleware was handed over with; `undefined` for a path that is none of a route. */
function routeOf({ req }: Context): string | undefined {
  const { method, path } = req.matchedRoutes[req.routeIndex] ?? {};
  if (method === undefined || (method === "ALL" && path.endsWith("*"))) return undefined;
  return `${method} ${path}`;
}

/** Where @hono/node-server keeps the socket. */
function socketOf({ env }: Context): Socket | undefined {
  return ((env ?? {}) as { incoming?: { socket?: Socket } }).incoming?.socket;
}

function peerOnNode(context: Context): string | undefined {
  const socket = socketOf(context);
  if (socket === undefined) {
    throw invalidArgument("neither key nor peer is given: this server does not tell whose a request is");
  }
  return peerOf(socket);
}

/** For requests without a key: where no address is known, they are counted together. */
function peerIfKnown(context: Context): string | undefined {
  const socket = socketOf(context);
  return socket && peerOf(socket);
}
