/** For handlers that take a `Request` and return a `Response`: Hono, Next.js, Bun, Deno and others. */

import { invalidArgument, optionalFunction } from "./argument";
import type { HeaderFields } from "./headers";
import { prefersText } from "./http/accept";
import { addressFrom } from "./http/address";
import { Guard, type Verdict } from "./http/guard";
import { checkOptions, type Denial, type RateLimit, type RateLimitOptions } from "./http/options";

export type { Denial, OutageEvent, RateLimit } from "./http/options";

/** A handler, whatever else it is given. */
export type FetchHandler<More extends unknown[]> = (request: Request, ...more: More) => Response | Promise<Response>;

export interface FetchOptions<More extends unknown[]>
  extends RateLimitOptions<
    [request: Request, ...more: More],
    [response: Response, request: Request, ...more: More],
    Response | Promise<Response>
  > {
  /** The address at the other end of the socket, which a `Request` does not tell; it or `key` is needed. */
  readonly peer?: (request: Request, ...more: More) => string | undefined;
}

const decided = new WeakMap<Request, RateLimit>();

/** What was decided about a request; `undefined` when it was skipped or did not come through here. */
export function rateLimitOf(request: Request): RateLimit | undefined {
  return decided.get(request);
}

/**
 * Limits what a handler is called for.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<More extends unknown[] = []>(
  handler: FetchHandler<More>,
  options: FetchOptions<More>,
): (request: Request, ...more: More) => Promise<Response> {
  optionalFunction("handler", handler);
  const { peer, key, onDenied } = checkOptions(options, ["peer"]);
  optionalFunction("peer", peer);
  if (peer === undefined && key === undefined) {
    throw invalidArgument("neither key nor peer is given: a Request does not tell whose it is");
  }
  const guard = new Guard(options, (rules, request: Request, ...more: More) =>
    addressFrom(rules, peer?.(request, ...more), (header) => request.headers.get(header)),
  );
  return async (request, ...more) => {
    const verdict = await guard.decide(request, request, ...more);
    if (verdict === undefined) return handler(request, ...more);
    const { problem, rateLimit, fields } = verdict;
    if (rateLimit !== undefined) decided.set(request, rateLimit);
    if (problem !== undefined) {
      if (onDenied === undefined) return denied(verdict, request.headers.get("accept") ?? undefined);
      const denial: Denial = { rateLimit: rateLimit as RateLimit, status: problem.status, problem, fields };
      return withFields(await onDenied(denial, request, ...more), fields);
    }
    const response = withFields(await handler(request, ...more), fields);
    if (guard.waitsForResponse) await guard.finish(verdict, [request, ...more], response, request, ...more);
    return response;
  };
}

/** @internal */
export function denied({ problem, fields }: Verdict, accept: string | undefined): Response {
  const { status, json, jsonType, text, textType } = problem as NonNullable<Verdict["problem"]>;
  const asText = prefersText(accept);
  const response = new Response(asText ? text : json, { status, headers: { vary: "Accept" } });
  response.headers.set("content-type", asText ? textType : jsonType);
  return withFields(response, fields);
}

/** The response with these fields. */
function withFields(response: Response, fields: HeaderFields): Response {
  try {
    for (const [name, value] of fields) response.headers.set(name, value);
    return response;
  } catch {
    // That of a redirect or of another server cannot be changed. An upgraded connection has none to copy.
    return response.status === 101 ? response : withFields(new Response(response.body, response), fields);
  }
}
