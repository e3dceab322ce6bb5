/** Middleware for Express 4 and 5, and for frameworks that pass Node's requests and responses to middleware as Express does. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { ClientAddressRules } from "./client_address";
import { invalidArgument } from "./errors";
import type { DenialResponse } from "./headers";
import { keyOfAddress, keyOfRequest } from "./http/address";
import { Guard, type GuardResult } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { beforeHead, headerLine, runGuard, setFields, varyWith } from "./http/run_guard";

export type { Denial, KeyPart, OutageEvent, RateLimit } from "./http/options";

declare global {
  namespace Express {
    interface Request {
      /** The decision of the last rate limit that did not skip the request; `undefined` when all skipped it. */
      rateLimit?: RateLimit;
    }
  }
}

/** The properties of Express's request that are read here. */
export interface ExpressRequest extends IncomingMessage {
  readonly ip?: string | undefined;
  readonly app?: { readonly settings: Settings };
  readonly params?: unknown;
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
): (req: Req, res: Res, next: Next) => void {
  const guard = new Guard<[req: Req, res: Res], [req: Req, res: Res], unknown>(checkOptions(options), {
    clientOf,
    methodOf: ({ method = "GET" }) => method,
    headerOf: (name, req) => headerLine(req, name),
    routeOf: (req) => expressRoute(req, middleware),
    userOf: (req) => (req as { readonly user?: unknown }).user,
    pathOf: (name, { params = {} }) => (params as Record<string, string | undefined>)[name],
  });

  /** Returns whether the request proceeds. */
  function apply(result: GuardResult<unknown> | undefined, req: Req, res: Res): boolean | Promise<boolean> {
    if (result === undefined) return true;
    if (result.rateLimit !== undefined) (req as Limited).rateLimit = result.rateLimit;
    setFields(res, result);
    const { denial, handleDenial } = result;
    if (denial === undefined) {
      if (guard.waitsForResponse) beforeHead(res, () => guard.finish(result, req, res));
      return true;
    }
    if (handleDenial === undefined) {
      sendDenial(denial, res);
      return false;
    }
    res.statusCode = denial.status;
    return Promise.resolve(handleDenial()).then(() => false);
  }

  const middleware = (req: Req, res: Res, next: Next) =>
    runGuard(guard, req, (req as Limited).rateLimit, [req, res], apply, next);
  if (!needsAddress(options)) return middleware;
  // Express takes an object with these members for a mounted application, and emits `mount` before the first request.
  const onMount = (_: "mount", app: { readonly settings: Settings }) => checkTrust(app.settings);
  return Object.assign(middleware, { handle: middleware, set: () => undefined, emit: onMount });
}

/** Whether the key is the address that the application's settings determine. */
function needsAddress({ key, clientAddress }: { readonly key?: unknown; readonly clientAddress?: unknown }): boolean {
  return (key === undefined || [key].flat().includes("address")) && clientAddress === undefined;
}

function checkTrust(settings: Settings): void {
  if (settings["trust proxy"] !== true) return;
  throw invalidArgument(
    "trust proxy is true, so that a client can choose its own address: set it to networks or to a number of hops, or give " +
      "clientAddress",
  );
}

function clientOf<Req extends ExpressRequest>(rules: ClientAddressRules | undefined, req: Req): string {
  if (rules !== undefined) return keyOfRequest(rules, req);
  const { settings = {} } = req.app ?? {};
  checkTrust(settings);
  return keyOfAddress(settings["trust proxy"] ? req.ip : undefined, req.socket);
}

function sendDenial({ status, contentType, vary, body }: DenialResponse, res: ServerResponse): void {
  res.statusCode = status;
  res.setHeader("content-type", contentType);
  res.setHeader("vary", varyWith(res.getHeader("vary"), vary));
  res.end(body);
}

// The rest finds the route of a middleware in Express's routers, whose types do not declare these properties.

/** An entry of a router: a route, or what `use` was called with. */
interface Layer {
  readonly route?: Route;
  readonly handle?: { readonly stack?: readonly Layer[] };
  /** The path of the entry: newer routers keep the argument, older ones only a pattern. */
  readonly rawPath?: unknown;
  readonly regexp?: RegExp & { readonly fast_slash?: boolean };
  readonly keys?: readonly { readonly name: string | number }[];
}

interface Route {
  readonly path: unknown;
  readonly stack: readonly { readonly handle: unknown }[];
  readonly methods: { readonly [method: string]: boolean | undefined };
}

type Router = { readonly stack?: readonly Layer[] };

interface RoutedRequest {
  readonly app?: Application;
  readonly route?: Route;
  readonly method: string;
}

interface Application {
  readonly path?: () => string;
  /** The router of Express 5. In Express 4 it is `_router`, and reading `router` throws. */
  readonly router?: Router;
  readonly _router?: Router;
}

/** The full path of each route, including the paths at which its routers are mounted. */
const paths = new WeakMap<Route, string>();

/** The method and the path of the matched route, the same text in every process; `undefined` if it lacks this middleware. */
function expressRoute(request: unknown, middleware: unknown): string | undefined {
  const { app, route, method } = request as RoutedRequest;
  if (!route?.stack?.some(({ handle }) => handle === middleware)) return undefined;
  let path = paths.get(route);
  if (path === undefined) {
    path = (app && mountedPath(app, route)) ?? pathText(route.path);
    paths.set(route, path);
  }
  // A route for GET answers HEAD too.
  const own = method === "HEAD" && !route.methods.head ? "GET" : method;
  return `${route.methods._all ? "ALL" : own} ${path}`;
}

function mountedPath(app: Application, route: Route): string | undefined {
  const { stack = [] } = app._router ?? app.router ?? {};
  const found = pathBelow(stack, route);
  return found === undefined ? undefined : (app.path?.() ?? "") + found;
}

/** The path of a route relative to a router, which may have the route in a nested router. */
function pathBelow(stack: readonly Layer[], route: Route): string | undefined {
  for (const layer of stack) {
    if (layer.route === route) return pathText(route.path);
    const { stack: inner } = layer.handle ?? {};
    const found = layer.route === undefined && inner ? pathBelow(inner, route) : undefined;
    if (found !== undefined) return mountPath(layer) + found;
  }
  return undefined;
}

function mountPath({ rawPath, regexp, keys = [] }: Layer): string {
  if (rawPath !== undefined) return rawPath === "/" ? "" : pathText(rawPath);
  if (regexp === undefined || regexp.fast_slash) return "";
  // This restores most paths from the pattern. For any other, the result is still unique.
  let parameter = 0;
  return regexp.source
    .replace(/^\^|\\\/\?\(\?=\\\/\|\$\)$/g, "")
    .replace(/\(\?:\\\/\(\[\^\/\]\+\?\)\)/g, () => `/:${keys[parameter++]?.name}`)
    .replace(/\\(.)/g, "$1");
}

function pathText(path: unknown): string {
  return [path].flat().map(String).join(",");
}
