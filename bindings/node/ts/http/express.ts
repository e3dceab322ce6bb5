/** Rate limits of requests in Express, and the route of such a request. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { ClientAddressRules } from "../client_address";
import { invalidArgument } from "../errors";
import { keyOfAddress, keyOfRequest, peerOf } from "./address";
import { ofNode } from "./by_configuration";
import type { RateLimit } from "./options";
import { limitNode, type NodeOptions, varyWith } from "./run_guard";

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
type Next = (error?: unknown) => void;

export type ExpressOptions<Req extends ExpressRequest, Res extends ServerResponse> = NodeOptions<Req, Res>;

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
  return limitNode(options, {
    clientOf,
    requestOf: (req) => {
      const { originalUrl, url } = req as { readonly originalUrl?: string; readonly url?: string };
      return ofNode(req, originalUrl ?? url, peerOf(req.socket));
    },
    routeOf,
    rawOf: (res) => res,
    setField: (res, name, value) => res.setHeader(name, value),
    removeField: (res, name) => res.removeHeader(name),
    sendDenial: ({ status, contentType, vary, body }, res) => {
      res.statusCode = status;
      res.setHeader("content-type", contentType);
      res.setHeader("vary", varyWith(res.getHeader("vary"), vary));
      res.end(body);
    },
    handleDenial: async (handler, { status }, res) => {
      res.statusCode = status;
      await handler();
    },
  });
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
