/** Middleware for procedures of tRPC. */

import { TRPCError } from "@trpc/server";

import { denialOf, guardOf, type OperationOptions } from "./http/operation";
import type { RateLimit } from "./http/options";

export type { KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

/** A call of a procedure, as the functions of the options get it. */
export interface TrpcCall<Context = unknown> {
  readonly ctx: Context;
  /** The procedure, such as `post.create`. */
  readonly path: string;
  readonly type: string;
}

/** What a procedure has returned. */
export interface TrpcResult {
  readonly ok: boolean;
}

export type TrpcOptions<Context> = OperationOptions<
  TrpcCall<Context>,
  [result: TrpcResult | undefined, call: TrpcCall<Context>]
>;

/** What a middleware of tRPC adds to the context of a procedure. */
interface Added {
  readonly rateLimit: RateLimit | undefined;
}

interface MiddlewareCall<Context, Result> extends TrpcCall<Context> {
  readonly next: (options: { ctx: Added }) => Promise<Result>;
}

/** The cause of the error of a denied call: `shape.data` of an error formatter may show it to clients. */
export class RateLimitExceeded extends Error {
  override readonly name = "RateLimitExceeded";

  constructor(
    message: string,
    /** The status of HTTP: 429, 503, 400 or 403. */
    readonly status: number,
    /** The wait until the call may be admitted; `null` where none helps, or none is known. */
    readonly retryAfterMs: number | null,
    /** The fields of a response, for `responseMeta`. */
    readonly fields: readonly (readonly [name: string, value: string])[],
  ) {
    super(message);
  }
}

const CODES = {
  400: "BAD_REQUEST",
  403: "FORBIDDEN",
  429: "TOO_MANY_REQUESTS",
} as const;

/**
 * Limits the calls of procedures: `t.procedure.use(rateLimit({ limiter, policy, key }))`. A denied call is a `TRPCError` with the code
 * `TOO_MANY_REQUESTS` and a `RateLimitExceeded` as its cause; `ctx.rateLimit` is the decision. Each call of a batch counts.
 * Quotas without a name belong to each procedure.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Context = unknown>(options: TrpcOptions<Context>) {
  const guard = guardOf<TrpcCall<Context>, [result: TrpcResult | undefined, call: TrpcCall<Context>]>(options, {
    nameOf: ({ path }) => path,
    userOf: ({ ctx }) => (ctx as { readonly user?: unknown } | undefined)?.user,
  });
  return async <Result extends TrpcResult>({
    ctx,
    path,
    type,
    next,
  }: MiddlewareCall<Context, Result>): Promise<Result> => {
    const call = { ctx, path, type };
    const known = (ctx as { readonly rateLimit?: unknown } | undefined)?.rateLimit;
    const result = await guard.decide(call, known, [call]);
    if (result === undefined) return next({ ctx: { rateLimit: known as RateLimit | undefined } });
    const denial = denialOf(result);
    if (denial !== undefined) {
      const { status, message, retryAfterMs, fields } = denial;
      const code = CODES[status as keyof typeof CODES] ?? (status < 500 ? CODES[429] : "INTERNAL_SERVER_ERROR");
      throw new TRPCError({ code, message, cause: new RateLimitExceeded(message, status, retryAfterMs, fields) });
    }
    let answer: Result | undefined;
    try {
      answer = await next({ ctx: { rateLimit: result.rateLimit } });
      return answer;
    } finally {
      if (guard.waitsForResponse) await guard.finish(result, answer, call);
      if (result.holds) guard.end(result, answer?.ok ? [answer, call] : undefined);
    }
  };
}
