/** How a request reached a middleware in Express 4 or 5: the patterns of its route and of the routers on the way. */

import { patternOfExpression, patternText } from "./pattern";

/** An entry of a router: a route, or what `use` was called with. */
interface Layer {
  readonly route?: Route;
  readonly handle?: Router & { readonly name?: string };
  /** The path of the entry: the newest routers keep the argument, those of Express 4 an expression, others only functions. */
  readonly rawPath?: unknown;
  readonly regexp?: RegExp & { readonly fast_slash?: boolean; readonly fast_star?: boolean };
  readonly keys?: readonly { readonly name: string | number }[];
  readonly slash?: boolean;
  readonly matchers?: readonly ((path: string) => Match | false)[];
}

interface Match {
  readonly path: string;
  readonly params: Readonly<Record<string, string | readonly string[] | undefined>>;
}

interface Route {
  readonly path: unknown;
  readonly stack: readonly { readonly handle: unknown }[];
  readonly methods: { readonly [method: string]: boolean | undefined };
}

type Router = { readonly stack?: readonly Layer[]; readonly caseSensitive?: boolean };

interface RoutedRequest {
  readonly app?: Application;
  readonly route?: Route;
  readonly method: string;
  readonly baseUrl?: string;
  /** `null` for a target such as `x://host`, where nothing is left after the mounts. */
  readonly path?: string | null;
}

/** The properties of an application that are read here. */
export interface Application {
  readonly parent?: Application;
  /** Where the application is mounted: the last place, if there are several. */
  readonly mountpath?: unknown;
  /** The router of Express 5. In Express 4 it is `_router`, and reading `router` throws. */
  readonly router?: Router;
  readonly _router?: Router;
}

/** The entries from an application's router to one of its routes or middlewares. */
type Way = readonly Layer[];

/** The entries that `app.use` has made of our middlewares, which Express takes for mounted applications. */
const mounted = new WeakMap<Layer, { readonly middleware: unknown; readonly path: unknown }>();

/** Notes that `app.use` has just been called with a middleware. */
export function noteMount(app: Application, middleware: unknown, path: unknown): void {
  const layer = routerOf(app).stack?.at(-1);
  if (layer !== undefined) mounted.set(layer, { middleware, path });
}

/** Whether the matched route has this middleware. */
export function isOnRoute(request: unknown, middleware: unknown): boolean {
  return (request as RoutedRequest).route?.stack?.some(({ handle }) => handle === middleware) ?? false;
}

/** The pattern of the matched route with those of its mounts; `undefined` without a route. */
export function routePattern(request: unknown): string | undefined {
  const { app, route } = request as RoutedRequest;
  if (route === undefined) return undefined;
  const ways = app === undefined ? [] : waysTo(app, route, (layer) => layer.route === route);
  const mounts = ways.map((way) => way.slice(0, -1));
  return (takenOf(request as RoutedRequest, mounts) ?? "") + patternText(route.path);
}

/** The method and the pattern of the matched route, the same text in every process; `undefined` without a route. */
export function expressRoute(request: unknown): string | undefined {
  const { route, method } = request as RoutedRequest;
  return route && `${route.methods._all ? "ALL" : method} ${routePattern(request)}`;
}

/** The pattern of the place at which `use` was called with this middleware; `undefined` if it is there for all paths. */
export function mountPattern(request: unknown, middleware: unknown): string | undefined {
  const { app, baseUrl } = request as RoutedRequest;
  if (app === undefined || !baseUrl) return undefined;
  const isOurs = (layer: Layer) => layer.handle === middleware || mounted.get(layer)?.middleware === middleware;
  return takenOf(request as RoutedRequest, waysTo(app, middleware as object, isOurs)) || undefined;
}

/** Whether a router on some way through the application ignores the case of paths; true where this is not known. */
export function ignoresCase(request: unknown): boolean {
  const { app } = request as RoutedRequest;
  return app === undefined || !isCaseSensitive(routerOf(rootOf(app)), new Set());
}

function isCaseSensitive(router: Router, seen: Set<Router>): boolean {
  if (seen.has(router)) return true;
  seen.add(router);
  return (
    router.caseSensitive === true &&
    (router.stack ?? []).every((layer) =>
      layer.route !== undefined || layer.handle?.stack === undefined
        ? !isApplication(layer)
        : isCaseSensitive(layer.handle, seen),
    )
  );
}

function rootOf(app: Application): Application {
  return app.parent === undefined ? app : rootOf(app.parent);
}

function routerOf(app: Application): Router {
  return app._router ?? app.router ?? {};
}

/** Whether an entry leads to a mounted application, which Express hides in a function of this name. */
function isApplication(layer: Layer): boolean {
  return layer.handle?.name === "mounted_app" && !mounted.has(layer);
}

const known = new WeakMap<
  object,
  { readonly app: Application; readonly size: number; readonly ways: readonly Way[] }
>();

/** All ways to a route or to a middleware; they are searched again when the application has got more entries. */
function waysTo(app: Application, target: object, isTarget: (layer: Layer) => boolean): readonly Way[] {
  const size = routerOf(rootOf(app)).stack?.length ?? 0;
  let found = known.get(target);
  if (found?.app !== app || found.size !== size) {
    found = { app, size, ways: waysThrough(app, isTarget) };
    known.set(target, found);
  }
  return found.ways;
}

function waysThrough(app: Application, isTarget: (layer: Layer) => boolean): readonly Way[] {
  const inner = waysBelow(routerOf(app), isTarget, new Set());
  const { parent } = app;
  if (parent === undefined) return inner;
  return placesOf(app, parent).flatMap((outer) => inner.map((way) => [...outer, ...way]));
}

/**
 * The ways to a mounted application. Where several applications are mounted, Express does not show which of them an entry leads
 * to: the place that the application knows comes first, then those with the most parameters, since they match the most paths.
 */
function placesOf(app: Application, parent: Application): readonly Way[] {
  const own = mountText(patternText(app.mountpath));
  const rank = (way: Way) => {
    const text = staticText(way[way.length - 1]);
    return text === own ? -1000 : -text.split("{").length;
  };
  const places = waysThrough(parent, isApplication);
  return [...places].sort((one, other) => rank(one) - rank(other));
}

function waysBelow(router: Router, isTarget: (layer: Layer) => boolean, above: Set<Router>): Way[] {
  // A router may have itself as an entry.
  if (above.has(router)) return [];
  above.add(router);
  const found = (router.stack ?? []).flatMap((layer) => {
    const own: Way[] = isTarget(layer) ? [[layer]] : [];
    const inner = layer.route === undefined && layer.handle?.stack ? waysBelow(layer.handle, isTarget, above) : [];
    return [...own, ...inner.map((way) => [layer, ...way])];
  });
  above.delete(router);
  return found;
}

/** The pattern of the first of these ways that the request can have come by. */
function takenOf({ baseUrl = "", path }: RoutedRequest, ways: readonly Way[]): string | undefined {
  for (const way of ways) {
    const text = follow(way, baseUrl, baseUrl + (path ?? "/"));
    if (text !== undefined) return text;
  }
  return undefined;
}

/** The pattern of a way, if its entries match what Express has taken off the path (`base`). */
function follow(way: Way, base: string, path: string): string | undefined {
  let [taken, text, rest] = ["", "", path];
  for (const layer of way) {
    const matched = matchOf(layer, rest);
    if (matched === undefined) return undefined;
    text += mountText(staticText(layer) || probedText(layer, matched));
    taken += matched.endsWith("/") ? matched.slice(0, -1) : matched;
    rest = rest.slice(matched.length);
    if (!rest.startsWith("/")) rest = `/${rest}`;
  }
  return taken === base ? text : undefined;
}

/** The beginning of a path that an entry takes off. */
function matchOf({ regexp, slash, matchers = [] }: Layer, path: string): string | undefined {
  if (slash || regexp?.fast_slash) return "";
  if (regexp?.fast_star) return path;
  const found = regexp === undefined ? firstMatch(matchers, path)?.path : regexp.exec(path)?.[0];
  return found !== undefined && path.startsWith(found) ? found : undefined;
}

function firstMatch(matchers: NonNullable<Layer["matchers"]>, path: string): Match | undefined {
  for (const matcher of matchers) {
    try {
      const match = matcher(path);
      if (match) return match;
    } catch {
      // An escape in the path is wrong.
      return undefined;
    }
  }
  return undefined;
}

function mountText(text: string): string {
  return text.endsWith("/") ? text.slice(0, -1) : text;
}

/** The pattern of an entry where the router has kept it; empty where it has not, and for an entry at `/`. */
function staticText(layer: Layer): string {
  const path = mounted.get(layer)?.path ?? layer.rawPath;
  if (path !== undefined) return patternText(path);
  const { regexp, keys = [] } = layer;
  if (regexp === undefined || regexp.fast_slash) return "";
  if (regexp.fast_star) return "{*}";
  const names = keys.map(({ name }) => name);
  return patternOfExpression(regexp, names);
}

const probed = new WeakMap<Layer, Map<string, string>>();
/** Segments that no client has sent, one of which any parameter accepts. */
const PROBES = ["polylimit", "4294967291"];

/**
 * The pattern of an entry of which the router has kept only functions that match: a segment is a parameter if another one in its
 * place matches, too.
 */
function probedText(layer: Layer, matched: string): string {
  const { matchers = [], slash } = layer;
  if (slash || matched === "") return "";
  const params = firstMatch(matchers, matched)?.params ?? {};
  const segments = matched.split("/");
  const form = `${Object.keys(params).join()} ${segments.length}`;
  const texts = probed.get(layer) ?? new Map<string, string>();
  probed.set(layer, texts);
  let text = texts.get(form);
  if (text === undefined) {
    text = probe(matchers, segments, params);
    // A parameter for several segments matches any number of them.
    if (!text.includes("{*")) texts.set(form, text);
  }
  return text;
}

function probe(matchers: NonNullable<Layer["matchers"]>, segments: readonly string[], params: Match["params"]): string {
  const path = segments.join("/");
  const isFolded = [path.toLowerCase(), path.toUpperCase()].every((one) => firstMatch(matchers, one)?.path === one);
  const found = segments.map((segment, at) => {
    if (segment === "") return segment;
    const withSegment = (other: string) => {
      const changed = segments.map((one, index) => (index === at ? other : one)).join("/");
      const match = firstMatch(matchers, changed);
      return match?.path === changed ? match.params : undefined;
    };
    for (const token of PROBES) {
      const changed = withSegment(token);
      if (changed !== undefined) return parameterWith(changed, token) ?? "{*}";
    }
    for (const [name, value] of Object.entries(params)) {
      const start = typeof value === "string" && value !== "" ? segment.indexOf(encodeURIComponent(value)) : -1;
      if (start < 0) continue;
      const [before, after] = [segment.slice(0, start), segment.slice(start + encodeURIComponent(`${value}`).length)];
      const [token] = PROBES;
      if (withSegment(before + token + after)?.[name] === token) return `${before}{${name}}${after}`;
    }
    return isFolded ? segment.toLowerCase() : segment;
  });
  return found.filter((text, at) => !text.startsWith("{*") || text !== found[at - 1]).join("/");
}

function parameterWith(params: Match["params"], token: string): string | undefined {
  for (const [name, value] of Object.entries(params)) {
    if (value === token) return `{${name}}`;
    if (Array.isArray(value) && value.includes(token)) return `{*${name}}`;
  }
  return undefined;
}
