/** How a request of Hono reached a middleware: before Hono calls the first function, it has found all that match the request. */

import type { Context } from "hono";

/** What `app.get`, `app.use` and the like have added to the router. */
interface Entry {
  /** `ALL` for `app.use` and `app.all`. */
  readonly method: string;
  /** With all base paths. */
  readonly path: string;
}

const ALL = "ALL";

function entryOf({ req }: Context): Entry | undefined {
  return req.matchedRoutes[req.routeIndex];
}

/** The functions for all methods at a path with `*` at the end are middlewares; the others may be handlers. */
function isMiddleware({ method, path }: Entry): boolean {
  return method === ALL && path.endsWith("*");
}

/** The method and the path with which the middleware was added; `undefined` for all paths, which is the limiter's budget. */
export function honoRoute(context: Context, separatesHead: boolean): string | undefined {
  const entry = entryOf(context);
  if (entry === undefined || (entry.method === ALL && (entry.path === "*" || entry.path === "/*"))) return undefined;
  // Hono has no routes for HEAD: those for GET answer it.
  const isHead = entry.method === "GET" && separatesHead && context.req.method === "HEAD";
  return `${isHead ? "HEAD" : entry.method} ${entry.path}`;
}

/**
 * The pattern of the middleware's route. A middleware that is not on a route knows the first route behind it; one with a `*` at
 * its end, which may be a middleware of one method, only if there is no other.
 */
export function honoPattern(context: Context): string | undefined {
  const { matchedRoutes, routeIndex } = context.req;
  const entries: readonly Entry[] = matchedRoutes.slice(routeIndex);
  const [own] = entries;
  if (own === undefined) return undefined;
  const routes = isMiddleware(own) ? entries.filter((entry) => !isMiddleware(entry)) : [own];
  const route = routes.find(({ path }) => !path.endsWith("*")) ?? routes[0];
  return route && patternOf(route.path);
}

/** The path as Hono's router reads it. The router has decoded it, and no line of a request ends within a path. */
export function honoPath({ req }: Context): string {
  return req.path.replace(/[\s\p{Cc}]/gu, encodeURIComponent);
}

/** Whether the middleware is on a route whose handler answers the request, or on a path where a handler behind it may. */
export function isOnHonoHandler({ req: { matchedRoutes, routeIndex } }: Context): boolean {
  const [own, ...behind]: readonly Entry[] = matchedRoutes.slice(routeIndex);
  if (own === undefined || isMiddleware(own)) return false;
  return own.method !== ALL || behind.some((entry) => !isMiddleware(entry));
}

const patterns = new Map<string, string>();

/** `/:a/:b{[0-9]+}/:c?/:d{.+}/*` as `/{a}/{b}/{c}/{*d}/{*}`. */
function patternOf(path: string): string {
  let pattern = patterns.get(path);
  if (pattern === undefined) {
    pattern = path.replace(/(?<=\/):([^/{}?]+)(\{(?:[^{}]|\{[^{}]*\})*\})?\??|(?<=\/)\*/g, (_, name, expression) => {
      if (name === undefined) return "{*}";
      return `{${expression && /^\{\.[*+]\}$/.test(expression) ? "*" : ""}${name}}`;
    });
    patterns.set(path, pattern);
  }
  return pattern;
}
