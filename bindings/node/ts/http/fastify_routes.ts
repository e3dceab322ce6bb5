/** The routes of Fastify: their names, the same in every process, and paths as Fastify's router reads them. */

import { channel } from "node:diagnostics_channel";

import { notAllowed } from "../arguments";
import { invalidArgument, type PolylimitError } from "../errors";

/** The versions of Fastify that are supported, as package.json has them. */
export const FASTIFY_VERSIONS = ">=4.0.0 <6";

/** The properties of Fastify's instances that are read here. */
export interface FastifyLike {
  readonly version: string;
  readonly server: object;
  readonly initialConfig: ServerSettings;
  addHook(name: "onRoute", hook: (this: object, route: NewRoute) => void): unknown;
}

/** Settings of the router. Fastify 5 has them in `routerOptions`, and accepts the old place too. */
interface RouterSettings {
  readonly caseSensitive?: boolean;
  readonly useSemicolonDelimiter?: boolean;
}

type ServerSettings = RouterSettings & { readonly routerOptions?: RouterSettings };

/** The options of a route, as a hook `onRoute` gets them. Fastify reads `config` after the hooks. */
interface NewRoute {
  readonly method: string | readonly string[];
  readonly url: string;
  readonly constraints?: Readonly<Record<string, unknown>>;
  /** The constraint `version`, as Fastify 4 also takes it. */
  readonly version?: unknown;
  config?: RouteConfig;
}

const ROUTE = Symbol.for("polylimit.route");

/** The `config` of a route. */
interface RouteConfig {
  readonly url?: string;
  readonly method?: string | readonly string[];
  readonly polylimit?: unknown;
  readonly rateLimit?: unknown;
  readonly [ROUTE]?: Route;
}

/** What distinguishes a route from all others of its server. */
interface Route {
  readonly methods: string;
  /** For a route for HEAD the methods of the route that answers GET with the same handler, where these are several. */
  readonly methodsOfGet: string | undefined;
  /** The path with the prefixes of all contexts. */
  readonly url: string;
  /** The constraints, such as a version: routes of one path differ in them. */
  readonly constraints: string;
}

/** The routes of a server. */
interface Routes {
  /** The methods of routes for GET, by path and constraints. */
  readonly ofGet: Map<string, string>;
  /** What routes say about their limits, by the instance to which a route was added. */
  readonly configs: WeakMap<object, RouteConfig[]>;
}

const routesOf = new WeakMap<object, Routes>();

// Fastify loads a plugin later than it is registered, unless the program awaits that, and the plugin's hooks do not see the
// routes that were added until then.
const newServers = channel("fastify.initialization");
newServers.subscribe((message) => {
  noteRoutes((message as { readonly fastify: FastifyLike }).fastify);
});

/** Notes the routes that are added to a server, from the first call on. */
function noteRoutes(fastify: FastifyLike): Routes {
  let routes = routesOf.get(fastify.server);
  if (routes === undefined) {
    const noted: Routes = { ofGet: new Map(), configs: new WeakMap() };
    fastify.addHook("onRoute", function (route) {
      noteRoute(noted, this, route);
    });
    routesOf.set(fastify.server, noted);
    routes = noted;
  }
  return routes;
}

function noteRoute({ ofGet, configs }: Routes, instance: object, route: NewRoute): void {
  const { method, url, config = {} } = route;
  const methods = [method].flat().join(",");
  const constraints = constraintsText(route);
  if ([method].flat().includes("GET")) ofGet.set(url + constraints, methods);
  const isOfSeveral = methods === "HEAD" && ofGet.get(url + constraints)?.includes(",");
  const methodsOfGet = isOfSeveral ? ofGet.get(url + constraints) : undefined;
  if (config.polylimit !== undefined || config.rateLimit !== undefined) {
    configs.set(instance, [...(configs.get(instance) ?? []), config]);
  }
  route.config = { ...config, [ROUTE]: { methods, methodsOfGet, url, constraints } };
}

function constraintsText({ constraints, version }: NewRoute): string {
  const all = Object.entries({ ...(version === undefined ? {} : { version }), ...constraints });
  const texts = all.map(([name, value]) => ` ${name}=${value instanceof Object ? describe(value) : value}`);
  return texts.sort().join("");
}

function describe(value: object): string {
  return value instanceof RegExp ? String(value) : JSON.stringify(value);
}

/**
 * The options that a route has for its limits, or `false`. Where another plugin has the name `rateLimit`, it is `polylimit`.
 *
 * @throws PolylimitError `invalid_argument` for any other value
 */
export function limitsOf({ polylimit, rateLimit }: RouteConfig): object | false | undefined {
  const [name, found] = polylimit === undefined ? ["rateLimit", rateLimit] : ["polylimit", polylimit];
  if (found === undefined || found === false || (typeof found === "object" && found !== null)) return found;
  throw notAllowed(`config.${name}`, found, "an object of options, or false");
}

/** Calls a function with the options for their limits that routes of this instance have, and those of routes added later. */
export function onLimits(fastify: FastifyLike, call: (limits: object) => void): void {
  const onConfig = (config: RouteConfig) => {
    const limits = limitsOf(config);
    if (limits) call(limits);
  };
  for (const config of noteRoutes(fastify).configs.get(fastify) ?? []) onConfig(config);
  fastify.addHook("onRoute", ({ config = {} }) => onConfig(config));
}

/** The properties of Fastify's requests that are read here. */
interface RoutedRequest {
  readonly server: FastifyLike;
  readonly routeOptions?: { readonly config?: RouteConfig };
  /** In Fastify 4.10 to 4.22. */
  readonly routeConfig?: RouteConfig;
  /** Before 4.10; reading it in a later version emits a warning. */
  readonly context?: { readonly config?: RouteConfig };
  readonly raw: { readonly url?: string };
}

/** The `config` of the route of a request. */
export function configOf(request: unknown): RouteConfig {
  const { routeOptions } = request as RoutedRequest;
  if (routeOptions === undefined) return (request as RoutedRequest).context?.config ?? {};
  return ("config" in routeOptions ? routeOptions.config : (request as RoutedRequest).routeConfig) ?? {};
}

/**
 * The methods, the path and the constraints of a route; `undefined` for a request that matches none. The core takes HEAD for GET,
 * where the options do not separate them. That Fastify answers HEAD by a route of several methods, it cannot know.
 */
export function fastifyRoute(request: unknown): string | undefined {
  const route = routeOf(request);
  return route && `${route.methodsOfGet ?? route.methods} ${route.url}${route.constraints}`;
}

/** The path of the route of a request, with the prefixes of all contexts, as documents write it: `/users/{id}`. */
export function fastifyPattern(request: unknown): string | undefined {
  const route = routeOf(request);
  if (route === undefined) return undefined;
  let pattern = patterns.get(route.url);
  if (pattern === undefined) {
    pattern = patternOf(route.url);
    patterns.set(route.url, pattern);
  }
  return pattern;
}

/** The patterns of paths, of which a server has as many as routes. */
const patterns = new Map<string, string>();

function routeOf(request: unknown): Route | undefined {
  const { [ROUTE]: route, method, url } = configOf(request);
  if (route !== undefined || url === undefined) return route;
  // The route is older than this module.
  const methods = [method ?? ""].flat().join(",");
  return { methods, methodsOfGet: undefined, url, constraints: "" };
}

/** `/:a/:b(^\\d+$)/*` as `/{a}/{b}/{*}`; a double colon is a colon. */
function patternOf(url: string): string {
  let pattern = "";
  for (let at = 0; at < url.length; at++) {
    const character = url[at];
    if (character === "*") pattern += "{*}";
    else if (character !== ":") pattern += character;
    else if (url[at + 1] === ":") {
      pattern += ":";
      at += 1;
    } else {
      const [name] = url.slice(at + 1).match(/^[^/():\-.*?]*/) as RegExpMatchArray;
      pattern += `{${name}}`;
      at = endOfParameter(url, at + name.length + 1) - 1;
    }
  }
  return pattern;
}

/** Where a parameter ends whose name ends at a position: behind its regular expression, and behind a question mark. */
function endOfParameter(url: string, nameEnd: number): number {
  let end = nameEnd;
  if (url[end] === "(") {
    for (let depth = 0; end < url.length; end++) {
      if (url[end] === "\\") end += 1;
      else if (url[end] === "(") depth += 1;
      else if (url[end] === ")" && --depth === 0) {
        end += 1;
        break;
      }
    }
  }
  return url[end] === "?" ? end + 1 : end;
}

/** The bit of the core for a router that ignores case. */
const IGNORES_CASE = 1;

/** What the core has to know about the router: its properties, as the core's bits. */
export function routerPaths(request: unknown): number {
  return routerOf((request as RoutedRequest).server).ignoresCase ? IGNORES_CASE : 0;
}

/**
 * The path of a request as the router reads it, after `rewriteUrl`. Up to Fastify 5.8, the first slash behind the scheme ends the
 * authority of an absolute target, even behind a `?`. Where the semicolon is a delimiter, it begins the query.
 */
export function routerPath(request: unknown): string {
  const { server, raw } = request as RoutedRequest;
  const target = raw.url ?? "/";
  const path = target.startsWith("/") ? target : target.replace(/^https?:\/\/.*?\//i, "/");
  if (!routerOf(server).endsAtSemicolon) return path;
  const end = path.search(/[?#;]/);
  return end < 0 ? path : path.slice(0, end);
}

/** How the router of a server reads paths. */
interface Router {
  readonly ignoresCase: boolean;
  readonly endsAtSemicolon: boolean;
}

const routers = new WeakMap<object, Router>();

function routerOf(server: FastifyLike): Router {
  let router = routers.get(server.initialConfig);
  if (router === undefined) {
    const settings = settingsOf(server);
    const delimiters = settings.map(({ useSemicolonDelimiter }) => useSemicolonDelimiter);
    router = {
      ignoresCase: settings.some(({ caseSensitive }) => caseSensitive === false),
      // Before the setting existed, a semicolon always began the query.
      endsAtSemicolon: delimiters.find((one) => one !== undefined) ?? server.version.startsWith("4."),
    };
    routers.set(server.initialConfig, router);
  }
  return router;
}

/** The places where settings of the router are, the decisive one first. The public one lacks some of them in Fastify 5.5 to 5.6. */
function settingsOf(server: FastifyLike): readonly RouterSettings[] {
  const { initialConfig } = server;
  const own = internalOf<ServerSettings>(server, "fastify.options") ?? {};
  return [own.routerOptions ?? {}, own, initialConfig.routerOptions ?? {}, initialConfig];
}

/** The error of a server whose version is not supported. Fastify itself refuses the plugin there, and no hook. */
export function versionError({ version }: Pick<FastifyLike, "version">): PolylimitError | undefined {
  if (["4", "5"].includes(version.split(".")[0])) return undefined;
  return invalidArgument(`Fastify ${version} is not supported: allowed are the versions ${FASTIFY_VERSIONS}`);
}

/** What Fastify keeps in an instance, or in one around it, under a symbol of its own with this description. */
export function internalOf<T>(fastify: object, description: string): T | undefined {
  for (let at: object | null = fastify; at !== null; at = Object.getPrototypeOf(at)) {
    const symbol = Object.getOwnPropertySymbols(at).find((one) => one.description === description);
    if (symbol !== undefined) return (at as Record<symbol, T>)[symbol];
  }
  return undefined;
}
