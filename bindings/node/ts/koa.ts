/** Middleware for Koa. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { ClientAddressRules } from "./client_address";
import { invalidArgument } from "./errors";
import { keyOfAddress, keyOfRequest, peerOf } from "./http/address";
import { ofNode } from "./http/by_configuration";
import { Guard } from "./http/guard";
import { checkPlace, isInRouter, koaPath, koaPattern, koaRoute, routerIgnoresCase } from "./http/koa_route";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { readWritten, whenDone } from "./http/response_end";
import { addCors, beforeHead, headerLine, setFields, varyWith } from "./http/run_guard";
import { checkVersion, loadedVersion } from "./http/versions";

export type { Denial, KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

/** The properties of Koa's context that are used here. */
export interface KoaContext {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly method: string;
  /** The path and the query as the client sent them. */
  readonly originalUrl?: string;
  /** The path as Koa has read it. */
  readonly path?: string;
  readonly app: { readonly proxy?: boolean };
  /** `state.rateLimit` is the decision of the last rate limit that did not skip the request. */
  // biome-ignore lint/suspicious/noExplicitAny: as Koa's own types
  readonly state: any;
  /** The parameters of the path, where a router has set them. */
  readonly params?: unknown;
  status: number;
  body?: unknown;
  respond?: boolean;
}

export type KoaOptions<Context extends KoaContext> = RateLimitOptions<[context: Context], [context: Context], unknown>;

/**
 * Limits the requests that pass through it; `ctx.state.rateLimit` is the decision. An `onDenied` sets `ctx.body`; the status
 * is set already. If it sets none, the problem document or text is sent. For `count`, a handler that throws has answered with
 * the status of its error, or 500. The client's address is the socket's, or is found by `clientAddress`.
 *
 * Quotas without a name at a route of @koa/router belong to that route, those of `router.use(path, rateLimit(...))` and of
 * koa-mount to that path, each with all prefixes, and those of `app.use(rateLimit(...))` to the limiter. A version of Koa that is not
 * supported fails the first request.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimit<Context extends KoaContext = KoaContext>(
  options: KoaOptions<Context>,
): (context: Context, next: () => Promise<unknown>) => Promise<void> {
  const guard = new Guard<[context: Context], [context: Context], unknown>(checkOptions(options), {
    clientOf,
    methodOf: ({ method }) => method,
    requestOf: (context) => {
      const { req } = context;
      const routerPaths = routerIgnoresCase(context, limit) ? IGNORES_CASE : 0;
      return { ...ofNode(req, koaPath(context), peerOf(req.socket)), routerPaths };
    },
    routeOf: (context) => koaRoute(context, limit),
    patternOf: (context) => koaPattern(context, limit),
    isOnHandler: (context) => isInRouter(context, limit),
    headerOf: (name, { req }) => headerLine(req, name),
    userOf: ({ state }) => (state as Limited).user,
    pathOf: (name, { params }) => (params as Record<string, string | undefined> | undefined)?.[name],
  });
  const limit = async (context: Context, next: () => Promise<unknown>) => {
    checkKoa(context.app);
    checkPlace(context, limit);
    const state = context.state as Limited;
    const result = await guard.decide(context, state.rateLimit, [context]);
    if (result === undefined) return void (await next());
    if (result.rateLimit !== undefined) state.rateLimit = result.rateLimit;
    const { res } = context;
    setFields(res, result);
    const { denial, handleDenial } = result;
    if (denial !== undefined) {
      context.status = denial.status;
      addCors(
        result,
        (name) => res.getHeader(name),
        (name, value) => res.setHeader(name, value),
      );
      await handleDenial?.();
      if (context.body !== undefined && context.body !== null) return;
      if (res.headersSent || context.respond === false) return;
      res.setHeader("content-type", denial.contentType);
      res.setHeader("vary", varyWith(res.getHeader("vary"), denial.vary));
      const { status } = context;
      context.body = denial.body;
      context.status = status;
      return;
    }
    let thrown: unknown;
    let hasThrown = false;
    if (result.holds) {
      const reader = guard.reader(result);
      if (reader !== undefined) readWritten(res, reader);
      whenDone(context.req, res, (hasResponse) => guard.end(result, hasResponse && !hasThrown ? [context] : undefined));
    }
    hasThrown = await next().then(
      () => false,
      (error: unknown) => {
        thrown = error;
        context.status = statusOf(error);
        return true;
      },
    );
    const fields = guard.waitsForResponse ? await guard.finish(result, context) : undefined;
    if (fields !== undefined && !res.headersSent) for (const [name, value] of fields) res.setHeader(name, value);
    if (!hasThrown) return;
    // Koa removes all fields before it answers an error.
    beforeHead(res, () => result.state.fields);
    throw thrown;
  };
  return limit;
}

/** The core's bit for a router that ignores case. */
const IGNORES_CASE = 1;

const supported = new WeakSet<object>();

/** Refuses an unsupported version of Koa at the first request, before which a middleware cannot read it. */
function checkKoa(app: object): void {
  if (supported.has(app)) return;
  const isOfApp = (exports: unknown) => typeof exports === "function" && app instanceof exports;
  checkVersion("koa", loadedVersion("lib/application.js", isOfApp));
  supported.add(app);
}

interface Limited {
  rateLimit?: RateLimit;
  readonly user?: unknown;
}

/** The status with which Koa answers an error. */
function statusOf(error: unknown): number {
  const { status, statusCode } = (error ?? {}) as { readonly status?: unknown; readonly statusCode?: unknown };
  const found = status ?? statusCode;
  return typeof found === "number" && found >= 400 && found <= 599 ? found : 500;
}

function clientOf(rules: ClientAddressRules | undefined, { app, req }: KoaContext): string {
  if (rules !== undefined) return keyOfRequest(rules, req);
  if (app.proxy) {
    throw invalidArgument("app.proxy is true, so that a client can choose its own address: give clientAddress");
  }
  return keyOfAddress(undefined, req.socket);
}
