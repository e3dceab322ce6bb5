/** For handlers that take a `Request` and return a `Response`: Hono, Next.js, Bun, Deno and others. */

import { invalidArgument, optionalFunction } from "./argument";
import type { HeaderFields, Refusal } from "./headers";
import { addressFrom } from "./http/address";
import { Guard } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";

export type { Denial, RateLimit } from "./http/options";

/** A handler, whatever else it is given. */
export type FetchHandler<More extends unknown[]> = (request: Request, ...more: More) => Response | Promise<Response>;

export interface FetchOptions<More extends unknown[]>
  extends RateLimitOptions<
    [request: Request, ...more: More],
    [response: Response, request: Request, ...more: More],
    Response | Promise<Response>
  > {
  /**
   * The address at the other end of the socket, which a `Request` does not tell; it or `key` is needed. Without it, all
   * requests for which `key` gives nothing are counted together.
   */
  readonly peer?: (request: Request, ...more: More) => string | undefined;
}

const decided = new WeakMap<Request, RateLimit>();

/** What was decided about a request; `undefined` when it was skipped or did not come through here. */
export function rateLimitOf(request: Request): RateLimit | undefined {
  return decided.get(request);
}

/**
 * Limits what a handler is called for. One that fails counts as one that answers 500. An `onDenied` or `onOutage` that gives
 * no response leaves it at the usual one.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<More extends unknown[] = []>(
  handler: FetchHandler<More>,
  options: FetchOptions<More>,
): (request: Request, ...more: More) => Promise<Response> {
  optionalFunction("handler", handler);
  const { peer, key } = checkOptions(options, ["peer"]);
  optionalFunction("peer", peer);
  if (peer === undefined && key === undefined) {
    throw invalidArgument("neither key nor peer is given: a Request does not tell whose it is");
  }
  const guard = new Guard(options, {
    clientOf: (rules, request: Request, ...more: More) =>
      addressFrom(rules, peer?.(request, ...more), (header) => request.headers.get(header)),
    acceptOf: (request, ..._more) => request.headers.get("accept") ?? undefined,
  });
  return async (request, ...more) => {
    const verdict = await guard.decide(decided.get(request), [request, ...more]);
    if (verdict === undefined) return handler(request, ...more);
    const { rateLimit, fields, refusal, instead } = verdict;
    decided.set(request, rateLimit);
    if (refusal !== undefined) {
      const own: Response | undefined = await instead?.();
      return own === undefined ? refused(refusal, fields) : withFields(own, fields);
    }
    let answer: Response;
    try {
      answer = await handler(request, ...more);
    } catch (error) {
      if (guard.waitsForResponse) await guard.finish(verdict, new Response(null, { status: 500 }), request, ...more);
      throw error;
    }
    const response = withFields(answer, decided.get(request) === rateLimit ? fields : missing(answer, fields));
    if (guard.waitsForResponse) await guard.finish(verdict, response, request, ...more);
    return response;
  };
}

/** @internal */
export function refused({ status, contentType, body }: Refusal, fields: HeaderFields): Response {
  return withFields(new Response(body, { status, headers: { "content-type": contentType, vary: "Accept" } }), fields);
}

/**
 * Those of the fields that a response does not have. One that a guard after this one has decided about tells of both
 * already.
 *
 * @internal
 */
export function missing({ headers }: Response, fields: HeaderFields): HeaderFields {
  return fields.filter(([name]) => !headers.has(name));
}

/**
 * The response with these fields.
 *
 * @internal
 */
export function withFields(response: Response, fields: HeaderFields): Response {
  try {
    for (const [name, value] of fields) response.headers.set(name, value);
    return response;
  } catch {
    // That of a redirect or of another server cannot be changed. An upgraded connection has none to copy.
    return response.status === 101 ? response : withFields(new Response(response.body, response), fields);
  }
}
