/** Middleware for Hono. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { Context, MiddlewareHandler } from "hono";

import { optionalFunction } from "./arguments";
import { invalidArgument } from "./errors";
import { denialToResponse, withCors, withFields } from "./fetch";
import type { HeaderFields } from "./headers";
import { keyOfPeer, peerOf, type Socket } from "./http/address";
import { ofFetch } from "./http/by_configuration";
import { Guard, type GuardResult } from "./http/guard";
import { honoPath, honoPattern, honoRoute, isOnHonoHandler } from "./http/hono_route";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { bodyUntilDone, type ResponseReader, readWritten, whenDone } from "./http/response_end";

export type { Denial, KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

declare module "hono" {
  interface ContextVariableMap {
    /** The decision of the last rate limit that did not skip the request; `undefined` when all skipped it. */
    rateLimit: RateLimit | undefined;
  }
}

export interface HonoOptions
  extends RateLimitOptions<[context: Context], [context: Context], Response | Promise<Response>> {
  /** Returns the address at the other end of the socket. Hono on Node knows it; elsewhere this option or `key` is required. */
  readonly peer?: (context: Context) => string | undefined;
}

/**
 * Limits the requests that pass through it; `c.get("rateLimit")` is the decision. If `onDenied` returns no
 * response, the default response is sent.
 *
 * Quotas without a name at a route, as in `app.get(path, rateLimit(...), handler)`, belong to that route, and those of
 * `app.use(path, rateLimit(...))` to that path, each with all base paths. Those of `app.use(rateLimit(...))` belong to the limiter.
 * `app.on` makes a route of each method and path that it gets.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit(options: HonoOptions): MiddlewareHandler {
  const { peer = options.key === undefined ? peerOnNode : peerIfKnown } = checkOptions(options, ["peer"]);
  optionalFunction("peer", peer);
  const separatesHead = options.separateHead === true;
  const guard = new Guard(options, {
    clientOf: (rules, context: Context) => keyOfPeer(rules, peer(context), (header) => context.req.header(header)),
    methodOf: (context) => context.req.method,
    requestOf: (context) => {
      const request = ofFetch(context.req.raw, (options.peer ?? peerIfKnown)(context));
      return { ...request, path: honoPath(context) };
    },
    headerOf: (name, context) => context.req.header(name),
    routeOf: (context) => honoRoute(context, separatesHead),
    patternOf: honoPattern,
    isOnHandler: isOnHonoHandler,
    userOf: (context) => context.get("user") ?? context.get("jwtPayload"),
    pathOf: (name, context) => context.req.param(name),
  });
  return async (context, next) => {
    const result = await guard.decide(context, context.get("rateLimit"), [context]);
    if (result === undefined) return next();
    if (result.rateLimit !== undefined) context.set("rateLimit", result.rateLimit);
    const { state, fields, denial, handleDenial } = result;
    if (handleDenial !== undefined) {
      for (const [name, value] of fields) context.header(name, value);
      const own: Response | undefined = await handleDenial();
      if (own !== undefined) return readable(withFields(own, fields), result, context);
      if (context.finalized) {
        replace(context, readable(withFields(context.res, fields), result, context));
        return undefined;
      }
    }
    if (denial !== undefined) return readable(denialToResponse(denial, fields), result, context);
    const reader = result.holds ? guard.reader(result) : undefined;
    const endsLater =
      result.holds && endWithNode(context, reader, (hasResponse) => end(guard, result, context, hasResponse));
    await next();
    if (guard.waitsForResponse) await guard.finish(result, context);
    // Later rate limits of the request have decided since.
    setFields(context, state.fields);
    if (result.holds && !endsLater) {
      const { signal } = context.req.raw;
      replace(
        context,
        bodyUntilDone(context.res, signal, reader, () => end(guard, result, context, true)),
      );
    }
    return undefined;
  };
}

/** A denial that pages of other origins can read. Hono adds what middlewares have set before, such as that for CORS. */
function readable(response: Response, result: Pick<HonoResult, "cors">, context: Context): Response {
  return result.cors.length === 0 ? response : withCors(response, result, context.res.headers);
}

type HonoGuard = Guard<[context: Context], [context: Context], Response | Promise<Response>>;
type HonoResult = GuardResult<Response | Promise<Response>>;

function end(guard: HonoGuard, result: HonoResult, context: Context, hasResponse: boolean): void {
  // After an error, the response is that of the application's error handler.
  guard.end(result, hasResponse && context.error === undefined ? [context] : undefined);
}

/** Has `end` called by Node's server, where there is one: it knows when a client has gone. Returns whether it does. */
function endWithNode(
  { env }: Context,
  reader: ResponseReader | undefined,
  end: (hasResponse: boolean) => void,
): boolean {
  const { incoming, outgoing } = (env ?? {}) as { incoming?: IncomingMessage; outgoing?: ServerResponse };
  // The request of a web socket has no response of Node.
  if (incoming === undefined || (outgoing === undefined && incoming.headers?.upgrade === undefined)) return false;
  if (outgoing !== undefined && reader !== undefined) readWritten(outgoing, reader);
  whenDone(incoming, outgoing, end);
  return true;
}

function setFields(context: Context, fields: HeaderFields): void {
  replace(context, withFields(context.res, fields));
}

function replace(context: Context, response: Response): void {
  if (response === context.res) return;
  // Without this assignment, Hono would merge the old headers into the new response.
  context.res = undefined;
  context.res = response;
}

/** The socket, where @hono/node-server keeps it. */
function socketOf({ env }: Context): Socket | undefined {
  return ((env ?? {}) as { incoming?: { socket?: Socket } }).incoming?.socket;
}

function peerOnNode(context: Context): string | undefined {
  const socket = socketOf(context);
  if (socket === undefined) {
    throw invalidArgument("neither key nor peer is given: this server does not provide the address of a client");
  }
  return peerOf(socket);
}

/** The fallback of requests without a key. Where no address is known, all of them are one client. */
function peerIfKnown(context: Context): string | undefined {
  const socket = socketOf(context);
  return socket && peerOf(socket);
}
