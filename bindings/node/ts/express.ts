/** Middleware for Express 4 and 5, and for anything that hands on Node's own requests and responses as Express does. */

import type { IncomingMessage, ServerResponse } from "node:http";

import { invalidArgument } from "./argument";
import type { ClientAddressRules } from "./client_address";
import type { Refusal } from "./headers";
import { addressAlone, addressOf } from "./http/address";
import { onceDone } from "./http/done";
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
  readonly app?: { readonly settings: { readonly [name: string]: unknown } };
}

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
 * (`true`) is refused then: a client would name its own address.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Req extends ExpressRequest = ExpressRequest, Res extends ServerResponse = ServerResponse>(
  options: ExpressOptions<Req, Res>,
): (req: Req, res: Res, next: Next) => void {
  const guard = new Guard<[req: Req, res: Res], [req: Req, res: Res], unknown>(checkOptions(options), {
    clientOf,
    acceptOf: (req) => req.headers.accept,
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

  return (req, res, next) => pass(guard, (req as Limited).rateLimit, [req, res], passes, next);
}

function clientOf<Req extends ExpressRequest>(rules: ClientAddressRules | undefined, req: Req): string {
  if (rules !== undefined) return addressOf(rules, req);
  const trust = req.app?.settings["trust proxy"];
  if (trust === true) {
    throw invalidArgument(
      "trust proxy is true, so that a client names its own address: set it to networks or to a number of hops, or give " +
        "clientAddress",
    );
  }
  return addressAlone(trust ? req.ip : undefined, req.socket);
}

function answer({ status, contentType, body }: Refusal, res: ServerResponse): void {
  res.statusCode = status;
  res.setHeader("content-type", contentType);
  const vary = res.getHeader("vary");
  res.setHeader("vary", vary === undefined ? "Accept" : `${[vary].flat().join(", ")}, Accept`);
  res.end(body);
}
