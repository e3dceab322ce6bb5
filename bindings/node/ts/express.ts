/** Middleware for Express 4 and 5, and for frameworks that pass Node's requests and responses to middleware as Express does. */

import type { ServerResponse } from "node:http";

import {
  checkTrust,
  type ExpressMiddleware,
  type ExpressOptions,
  type ExpressRequest,
  expressRoute,
  isOnRoute,
  limitExpress,
  type Settings,
} from "./http/express";
import { needsAddress } from "./http/key_parts";

export type { ExpressOptions, ExpressRequest } from "./http/express";
export type { Denial, KeyPart, OutageEvent, RateLimit } from "./http/options";

/**
 * Limits the requests that pass through it. `req.rateLimit` is the decision, and the response gets its header fields. The
 * response to a denied request is a problem document or text, with status 429, or 503 when the store is unavailable. An
 * `onDenied` must end the response, whose status is set already: its return value is not sent, and the request does not
 * proceed.
 *
 * The client's address is found by `clientAddress`, or else by the application's `trust proxy`. In the latter case `true`
 * (every proxy) is refused, because a client could then choose its own address: `app.use` throws the error, or the first
 * request fails with it if the setting changes later, or if a router or a route uses the middleware.
 *
 * Quotas without a name at a route, as in `app.get(path, rateLimit(...))`, belong to that route.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Req extends ExpressRequest = ExpressRequest, Res extends ServerResponse = ServerResponse>(
  options: ExpressOptions<Req, Res>,
): ExpressMiddleware<Req, Res> {
  const middleware: ExpressMiddleware<Req, Res> = limitExpress(options, (req) =>
    isOnRoute(req, middleware) ? expressRoute(req) : undefined,
  );
  if (!needsAddress(options)) return middleware;
  // Express takes an object with these members for a mounted application, and emits `mount` before the first request.
  const onMount = (_: "mount", app: { readonly settings: Settings }) => checkTrust(app.settings);
  return Object.assign(middleware, { handle: middleware, set: () => undefined, emit: onMount });
}
