/** How a request reached a middleware in Koa: the patterns of @koa/router, and the prefixes of koa-mount. */

import { invalidArgument } from "../errors";
import { patternText } from "./pattern";
import { checkVersion, loadedVersion } from "./versions";

/** The properties of Koa's context that are read here; the last ones are set by @koa/router and by koa-mount. */
interface RoutedContext {
  readonly method: string;
  readonly path?: string;
  readonly originalUrl?: string;
  readonly req: { readonly url?: string };
  readonly request?: object;
  readonly matched?: readonly Layer[];
  readonly mountPath?: string;
  readonly router?: object;
}

/** An entry of @koa/router: a route, or what `router.use` was called with, which has no methods. */
interface Layer {
  readonly path: unknown;
  readonly methods: readonly string[];
  readonly stack: readonly unknown[];
  readonly opts?: { readonly sensitive?: boolean };
  readonly regexp?: RegExp;
}

/** The method and the pattern of the route that has a middleware, or the pattern of the place where it is used. */
export function koaRoute(context: RoutedContext, middleware: unknown): string | undefined {
  const layer = layerOf(context, middleware);
  if (layer === undefined) return prefixOf(context) || undefined;
  const pattern = prefixOf(context) + patternText(layer.path);
  if (layer.methods.length > 0) return `${methodOf(layer, context)} ${pattern}`;
  // What a router uses for all its paths has a pattern for all of them.
  return pattern.replace(/\/?\{\*[^}]*\}$/, "") || undefined;
}

/** The pattern of the route whose handler a request will reach; `undefined` outside of a router. */
export function koaPattern(context: RoutedContext, middleware: unknown): string | undefined {
  const { matched = [] } = context;
  const own = layerOf(context, middleware);
  if (own === undefined) return undefined;
  const isRoute = (layer: Layer) => layer.methods.includes(context.method);
  const route = isRoute(own) ? own : matched.slice(matched.indexOf(own)).find(isRoute);
  return route && prefixOf(context) + patternText(route.path);
}

/** Whether a middleware belongs to a router, which runs it only for requests that a route has matched. */
export function isInRouter(context: RoutedContext, middleware: unknown): boolean {
  return layerOf(context, middleware) !== undefined;
}

/** Whether paths are compared without regard to case; true where the router is not known. */
export function routerIgnoresCase(context: RoutedContext, middleware: unknown): boolean {
  return layerOf(context, middleware)?.opts?.sensitive !== true;
}

const checked = new WeakSet<Layer>();

/**
 * Refuses the place of a middleware that its router compares with regard to case, while it finds its routes without: a client that
 * changes the case of the prefix would go round the limit. @koa/router 15 does so for `router.use` without a path. In the same way
 * a version of the router that is not supported is refused.
 *
 * @throws PolylimitError `invalid_argument`
 */
export function checkPlace(context: RoutedContext, middleware: unknown): void {
  if (context.matched === undefined) return;
  const layer = layerOf(context, middleware);
  if (layer === undefined || checked.has(layer)) return;
  const { router } = context;
  const isOfRouter = (exports: unknown) => typeof exports === "function" && router instanceof exports;
  checkVersion("koaRouter", loadedVersion("lib/router.js", isOfRouter));
  const { methods, regexp, opts } = layer;
  const hasLetters = /[a-z]/i.test((regexp?.source ?? "").replace(/\\./g, ""));
  if (methods.length === 0 && hasLetters && regexp?.ignoreCase === false && opts?.sensitive !== true) {
    throw invalidArgument(
      "router.use(rateLimit(...)) is without a path, where @koa/router compares the prefix with regard to case, but finds its routes " +
        "without: give it a path, as in router.use('{/*rest}', rateLimit(...)), or give the limit to the routes, or the router " +
        "sensitive: true",
    );
  }
  checked.add(layer);
}

function layerOf({ matched = [] }: RoutedContext, middleware: unknown): Layer | undefined {
  return matched.find(({ stack }) => stack.includes(middleware));
}

function methodOf({ methods }: Layer, { method }: RoutedContext): string {
  // The methods of `router.all` are all that Node knows.
  return methods.length > 10 ? "ALL" : method;
}

/** The prefixes of koa-mount, which it takes off the path. They are texts without parameters. */
function prefixOf(context: RoutedContext): string {
  if (context.mountPath === undefined) return "";
  const { path = "/" } = context;
  const whole = originalPath(context);
  const inner = whole.endsWith(path) ? whole.slice(0, whole.length - path.length) : whole;
  return inner.endsWith("/") ? inner.slice(0, -1) : inner;
}

/** The path as the routers read it, with what koa-mount has taken off. */
export function koaPath(context: RoutedContext): string {
  const { path, mountPath, originalUrl, req } = context;
  if (path === undefined) return originalUrl ?? req.url ?? "/";
  return mountPath === undefined ? (path ?? "/") : originalPath(context);
}

/** The path of the original target, read by Koa itself: it reads other things out of some targets than Node does. */
function originalPath({ request, originalUrl, path = "/" }: RoutedContext): string {
  if (request === undefined || originalUrl === undefined) return path;
  return (
    (Object.create(request, { req: { value: { url: originalUrl } } }) as { readonly path: string | null }).path ?? "/"
  );
}
