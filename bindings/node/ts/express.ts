/** Middleware for Express 4 and 5, and for anything that hands on Node's own requests and responses as Express does. */

import type { IncomingMessage, ServerResponse } from "node:http";

import { invalidArgument } from "./argument";
import type { ClientAddressRules } from "./client_address";
import type { Refusal } from "./headers";
import { addressAlone, addressOf } from "./http/address";
import { onceDone } from "./http/done";
import { expressRoute } from "./http/express_route";
import { Guard, type Verdict } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { pass } from "./http/pass";

export type { Denial, RateLimit } from "./http/options";

declare global {
  namespace Express {
    interface Request {
      /** What was decided about the request, by the last that did not skip it; `undefined` when all did. */
      rateLimit?: RateLimit;
    }
  }
}

/** What is used of Express's request. */
export interface ExpressRequest extends IncomingMessage {
  readonly ip?: string | undefined;
  readonly app?: { readonly settings: Settings };
}

type Settings = { readonly [name: string]: unknown };
type Limited = { rateLimit?: RateLimit };
type Next = (error?: unknown) => void;

export type ExpressOptions<Req extends ExpressRequest, Res extends ServerResponse> = RateLimitOptions<
  [req: Req, res: Res],
  [req: Req, res: Res],
  unknown
>;

/**
 * Limits the requests that pass through it. `req.rateLimit` carries the decision, the response its fields; a denied
 * request is answered by a problem document or text, with 429, or 503 when the store could not be asked. An `onDenied` or
 * `onOutage` has to end the response, whose status is set already: what it returns is not sent, and the request goes no
 * further.
 *
 * The client's address is found by `clientAddress`, or else as the application's `trust proxy` says. Trusting every proxy
 * (`true`) is refused then: a client would name its own address. An application's `use` refuses it; where it is set later, or
 * the middleware is handed to a router or a route, the first request finds it.
 *
 * Quotas without a name that are given at a route, as in `app.get(path, rateLimit(...))`, belong to that route.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Req extends ExpressRequest = ExpressRequest, Res extends ServerResponse = ServerResponse>(
  options: ExpressOptions<Req, Res>,
): (req: Req, res: Res, next: Next) => void {
  const guard = new Guard<[req: Req, res: Res], [req: Req, res: Res], unknown>(checkOptions(options), {
    clientOf,
    acceptOf: (req) => req.headers.accept,
    routeOf: (req) => expressRoute(req, middleware),
  });

  /** Whether the request goes on. */
  function passes(verdict: Verdict<unknown> | undefined, req: Req, res: Res): boolean | Promise<boolean> {
    if (verdict === undefined) return true;
    (req as Limited).rateLimit = verdict.rateLimit;
    for (const field of verdict.fields) res.setHeader(field[0], field[1]);
    const { refusal, instead } = verdict;
    if (refusal === undefined) {
      if (guard.waitsForResponse) onceDone(res, () => void guard.finish(verdict, req, res));
      return true;
    }
    if (instead === undefined) {
      answer(refusal, res);
      return false;
    }
    res.statusCode = refusal.status;
    return Promise.resolve(instead()).then(() => false);
  }

  const middleware = (req: Req, res: Res, next: Next) =>
    pass(guard, (req as Limited).rateLimit, [req, res], passes, next);
  if (!needsAddress(options)) return middleware;
  // To Express it is an application that is mounted in another: only those are told where, which is before any request.
  const onMount = (_: "mount", app: { readonly settings: Settings }) => checkTrust(app.settings);
  return Object.assign(middleware, { handle: middleware, set: () => undefined, emit: onMount });
}

/** Whether the address of a client is found as the application says. */
function needsAddress({ key, clientAddress }: { readonly key?: unknown; readonly clientAddress?: unknown }): boolean {
  return key === undefined && clientAddress === undefined;
}

function checkTrust(settings: Settings): void {
  if (settings["trust proxy"] !== true) return;
  throw invalidArgument(
    "trust proxy is true, so that a client names its own address: set it to networks or to a number of hops, or give " +
      "clientAddress",
  );
}

function clientOf<Req extends ExpressRequest>(rules: ClientAddressRules | undefined, req: Req): string {
  if (rules !== undefined) return addressOf(rules, req);
  const { settings = {} } = req.app ?? {};
  checkTrust(settings);
  return addressAlone(settings["trust proxy"] ? req.ip : undefined, req.socket);
}

function answer({ status, contentType, body }: Refusal, res: ServerResponse): void {
  res.statusCode = status;
  res.setHeader("content-type", contentType);
  const vary = res.getHeader("vary");
  res.setHeader("vary", vary === undefined ? "Accept" : `${[vary].flat().join(", ")}, Accept`);
  res.end(body);
}
