/** A wrapper for handlers that take a `Request` and return a `Response`: Next.js, Bun, Deno and others. */

import { optionalFunction } from "./arguments";
import { invalidArgument } from "./errors";
import type { DenialResponse, HeaderFields } from "./headers";
import { keyOfPeer } from "./http/address";
import { isByConfiguration, ofFetch } from "./http/by_configuration";
import { Guard, type GuardResult } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { bodyUntilDone } from "./http/response_end";
import { addCors } from "./http/run_guard";

export type { Denial, KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

/** A handler; `More` are its further parameters. */
export type FetchHandler<More extends unknown[]> = (request: Request, ...more: More) => Response | Promise<Response>;

export interface FetchOptions<More extends unknown[]>
  extends RateLimitOptions<
    [request: Request, ...more: More],
    [response: Response, request: Request, ...more: More],
    Response | Promise<Response>
  > {
  /**
   * Returns the address at the other end of the socket, which a `Request` does not have. This option or `key` is required.
   * Without it, all requests for which `key` returns nothing are one client.
   */
  readonly peer?: (request: Request, ...more: More) => string | undefined;
}

const decided = new WeakMap<Request, RateLimit>();

/** The decision about a request; `undefined` for a request that was skipped or not limited. */
export function rateLimitOf(request: Request): RateLimit | undefined {
  return decided.get(request);
}

/**
 * Wraps a handler, so that it is called only for admitted requests. For `count`, a handler that throws has answered with
 * 500. If `onDenied` returns no response, the default response is sent. Preflights that get to the handler count as all other
 * requests: what answers them by itself wraps the limit.
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
  if (peer === undefined && key === undefined && !isByConfiguration(options)) {
    throw invalidArgument("neither key nor peer is given: a Request does not have the address of its client");
  }
  const guard = new Guard(options, {
    clientOf: (rules, request: Request, ...more: More) =>
      keyOfPeer(rules, peer?.(request, ...more), (header) => request.headers.get(header)),
    methodOf: (request, ..._more) => request.method,
    requestOf: (request, ...more) => ofFetch(request, peer?.(request, ...more)),
    headerOf: (name, request, ..._more) => request.headers.get(name) ?? undefined,
    isOnHandler: () => true,
  });
  return async (request, ...more) => {
    const result = await guard.decide(request, decided.get(request), [request, ...more]);
    if (result === undefined) return handler(request, ...more);
    const { rateLimit, state, fields, denial, handleDenial } = result;
    if (rateLimit !== undefined) decided.set(request, rateLimit);
    if (denial !== undefined) {
      const own: Response | undefined = await handleDenial?.();
      return withCors(own === undefined ? denialToResponse(denial, fields) : withFields(own, fields), result);
    }
    let answer: Response;
    try {
      answer = await handler(request, ...more);
    } catch (error) {
      if (guard.waitsForResponse) await guard.finish(result, new Response(null, { status: 500 }), request, ...more);
      if (result.holds) guard.end(result, undefined);
      throw error;
    }
    if (guard.waitsForResponse) await guard.finish(result, answer, request, ...more);
    // Other rate limits of the request may have decided since.
    const response = withFields(answer, state.fields);
    return result.holds
      ? bodyUntilDone(response, request.signal, guard.reader(result), () =>
          guard.end(result, [response, request, ...more]),
        )
      : response;
  };
}

/** @internal */
export function denialToResponse({ status, contentType, vary, body }: DenialResponse, fields: HeaderFields): Response {
  return withFields(new Response(body, { status, headers: { "content-type": contentType, vary } }), fields);
}

/**
 * Adds what a page of another origin needs to read a denial, unless it is there, or is among the headers that the framework adds.
 *
 * @internal
 */
export function withCors(response: Response, result: Pick<GuardResult<unknown>, "cors">, later?: Headers): Response {
  const added: [string, string][] = [];
  addCors(
    result,
    (name) => response.headers.get(name) ?? later?.get(name),
    (name, value) => added.push([name, value]),
  );
  return withFields(response, added);
}

/**
 * Adds the fields to a response, or to a copy of one whose headers cannot be changed.
 *
 * @internal
 */
export function withFields(response: Response, fields: HeaderFields): Response {
  try {
    for (const [name, value] of fields) response.headers.set(name, value);
    return response;
  } catch {
    // The headers of a redirect or of a fetched response are immutable. A response that upgrades its connection has no copy.
    return response.status === 101 ? response : withFields(new Response(response.body, response), fields);
  }
}
