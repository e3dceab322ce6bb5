/** Middleware for Express 4 and 5, and for anything that hands on Node's own requests and responses as Express does. */

import type { IncomingMessage, ServerResponse } from "node:http";

import { invalidArgument } from "./argument";
import type { ClientAddressRules } from "./client_address";
import { prefersText } from "./http/accept";
import { addressAlone, addressOf } from "./http/address";
import { Guard, type Verdict } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";

export type { Denial, OutageEvent, RateLimit } from "./http/options";

declare global {
  namespace Express {
    interface Request {
      /** What was decided about the request; `undefined` when it was skipped. */
      rateLimit?: RateLimit;
    }
  }
}

/** What is used of Express's request. */
export interface ExpressRequest extends IncomingMessage {
  readonly ip?: string | undefined;
  readonly app?: { get(name: string): unknown };
}

type Next = (error?: unknown) => void;

export type ExpressOptions<Req extends ExpressRequest, Res extends ServerResponse> = RateLimitOptions<
  [req: Req, res: Res],
  [req: Req, res: Res],
  unknown
>;

/**
 * Limits the requests that pass through it. `req.rateLimit` carries the decision, the response its fields; a denied
 * request is answered by a problem document or text, with 429, or 503 when the store could not be asked.
 *
 * The client's address is found by `clientAddress`, or else as the application's `trust proxy` says. Trusting every proxy
 * (`true`) is refused then: a client would name its own address.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Req extends ExpressRequest = ExpressRequest, Res extends ServerResponse = ServerResponse>(
  options: ExpressOptions<Req, Res>,
): (req: Req, res: Res, next: Next) => void {
  const guard = new Guard(checkOptions(options), clientOf<Req>);
  const { onDenied } = options;

  async function passes(req: Req, res: Res): Promise<boolean> {
    const verdict = await guard.decide(req, req, res);
    (req as { rateLimit?: RateLimit }).rateLimit = verdict?.rateLimit;
    if (verdict === undefined) return true;
    for (const [name, value] of verdict.fields) res.setHeader(name, value);
    const { problem, rateLimit, fields } = verdict;
    if (problem === undefined) {
      if (guard.waitsForResponse) res.once("finish", () => void guard.finish(verdict, [req, res], req, res));
      return true;
    }
    if (onDenied === undefined) {
      answer(problem, req, res);
    } else {
      res.statusCode = problem.status;
      await onDenied({ rateLimit: rateLimit as RateLimit, status: problem.status, problem, fields }, req, res);
    }
    return false;
  }

  return (req, res, next) => {
    passes(req, res).then((passed) => {
      if (passed) next();
    }, next);
  };
}

function clientOf<Req extends ExpressRequest>(rules: ClientAddressRules | undefined, req: Req): string {
  if (rules !== undefined) return addressOf(rules, req);
  const trust = req.app?.get("trust proxy");
  if (trust === true) {
    throw invalidArgument(
      "trust proxy is true, so that a client names its own address: set it to networks or to a number of hops, or give " +
        "clientAddress",
    );
  }
  return addressAlone(trust ? req.ip : req.socket.remoteAddress);
}

function answer(problem: NonNullable<Verdict["problem"]>, req: IncomingMessage, res: ServerResponse): void {
  const text = prefersText(req.headers.accept);
  res.statusCode = problem.status;
  res.setHeader("content-type", text ? problem.textType : problem.jsonType);
  const vary = res.getHeader("vary");
  res.setHeader("vary", vary === undefined ? "Accept" : `${[vary].flat().join(", ")}, Accept`);
  res.end(text ? problem.text : problem.json);
}
