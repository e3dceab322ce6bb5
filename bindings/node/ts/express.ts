/** Middleware for Express 4 and 5, and for frameworks that pass Node's requests and responses to middleware as Express does. */

import type { ServerResponse } from "node:http";

import {
  checkExpress,
  checkTrust,
  type ExpressApplication,
  type ExpressMiddleware,
  type ExpressOptions,
  type ExpressRequest,
  limitExpress,
} from "./http/express";
import { expressRoute, isOnRoute, mountPattern, noteMount, routePattern } from "./http/express_route";
import { checkPathParts, needsAddress } from "./http/key_parts";

export type { ExpressOptions, ExpressRequest } from "./http/express";
export type { Denial, KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

/**
 * Limits the requests that pass through it. `req.rateLimit` is the decision, and the response gets its header fields. The
 * response to a denied request is a problem document or text, with status 429, or 503 when the store is unavailable. An
 * `onDenied` must end the response, whose status is set already: its return value is not sent, and the request does not
 * proceed.
 *
 * The client's address is found by `clientAddress`, or else by the application's `trust proxy`. In the latter case `true`
 * (every proxy) is refused, because a client could then choose its own address: `app.use` throws the error, or the first
 * request fails with it if the setting changes later, or if a router or a route uses the middleware. In the same way a version
 * of Express that is not supported is refused.
 *
 * Quotas without a name at a route, as in `app.get(path, rateLimit(...))`, belong to that route, and those of
 * `app.use(path, rateLimit(...))` and `router.use(rateLimit(...))` to that path, each with the paths of all routers on the way:
 * a router that is mounted twice has budgets of its own at each place. Quotas without a name for all paths belong to the limiter.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Req extends ExpressRequest = ExpressRequest, Res extends ServerResponse = ServerResponse>(
  options: ExpressOptions<Req, Res>,
): ExpressMiddleware<Req, Res> {
  const limit: ExpressMiddleware<Req, Res> = limitExpress(options, {
    routeOf: (req) => (isOnRoute(req, middleware) ? expressRoute(req) : mountPattern(req, middleware)),
    patternOf: (req) => (isOnRoute(req, middleware) ? routePattern(req) : undefined),
    isOnHandler: (req) => isOnRoute(req, middleware),
  });
  let checked: object | undefined;
  const middleware: ExpressMiddleware<Req, Res> = (req, res, next) => {
    if (req.app !== checked) {
      try {
        checkExpress(req.app);
      } catch (error) {
        next(error);
        return;
      }
      checked = req.app;
    }
    limit(req, res, next);
  };
  // Express takes a function with these members for a mounted application, and emits `mount` before the first request.
  const onMount = (_: "mount", app: ExpressApplication) => {
    const { mountpath } = middleware as { readonly mountpath?: unknown };
    checkExpress(app);
    if (needsAddress(options)) checkTrust(app.settings);
    checkPathParts(options.key, mountpath);
    noteMount(app, middleware, mountpath);
  };
  return Object.assign(middleware, { handle: middleware, set: () => undefined, emit: onMount });
}
