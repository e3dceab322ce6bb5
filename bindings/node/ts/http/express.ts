/** Rate limits of requests in Express, and the route of such a request. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { ClientAddressRules } from "../client_address";
import { invalidArgument } from "../errors";
import type { DenialResponse } from "../headers";
import { keyOfAddress, keyOfRequest } from "./address";
import { Guard, type GuardResult } from "./guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./options";
import { beforeHead, headerLine, runGuard, setFields, varyWith } from "./run_guard";

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

export type Settings = { readonly [name: string]: unknown };
type Limited = { rateLimit?: RateLimit };
type Next = (error?: unknown) => void;

export type ExpressOptions<Req extends ExpressRequest, Res extends ServerResponse> = RateLimitOptions<
  [req: Req, res: Res],
  [req: Req, res: Res],
  unknown
>;

export type ExpressMiddleware<Req, Res> = (req: Req, res: Res, next: Next) => void;

/**
 * A middleware with these options. Quotas without a name belong to the route that `routeOf` returns.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function limitExpress<Req extends ExpressRequest, Res extends ServerResponse>(
  options: ExpressOptions<Req, Res>,
  routeOf?: (req: Req) => string | undefined,
): ExpressMiddleware<Req, Res> {
  const guard = new Guard<[req: Req, res: Res], [req: Req, res: Res], unknown>(checkOptions(options), {
    clientOf,
    methodOf: ({ method = "GET" }) => method,
    headerOf: (name, req) => headerLine(req, name),
    routeOf,
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

  return (req, res, next) => runGuard(guard, req, (req as Limited).rateLimit, [req, res], apply, next);
}

export function checkTrust(settings: Settings): void {
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

// The rest finds the route of a request in Express's routers, whose types do not declare these properties.

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

/** Whether the matched route has this middleware. */
export function isOnRoute(request: unknown, middleware: unknown): boolean {
  return (request as RoutedRequest).route?.stack?.some(({ handle }) => handle === middleware) ?? false;
}

/** The method and the path of the matched route, the same text in every process; `undefined` without a route. */
export function expressRoute(request: unknown): string | undefined {
  const { app, route, method } = request as RoutedRequest;
  if (route === undefined) return undefined;
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
