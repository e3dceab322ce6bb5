/** A guard for NestJS on Express or Fastify, and a decorator that changes its options for a controller or a handler. */

import type { ServerResponse } from "node:http";

import { checkedOptions } from "./arguments";
import { checkExpress, type ExpressRequest, limitExpress } from "./http/express";
import { expressRoute, routePattern } from "./http/express_route";
import { fastifyRoute, limitFastify } from "./http/fastify";
import { OPTION_NAMES, type RateLimitOptions } from "./http/options";
import { checkVersion, installedVersion, loadedVersion } from "./http/versions";

export type { Denial, KeyPart, OutageEvent } from "./http/options";

/** The functions among the options get the request and the response of Express, or the request and the reply of Fastify. */
export type NestOptions<Req, Res> = RateLimitOptions<[req: Req, res: Res], [req: Req, res: Res], unknown>;

/** The methods of Nest's `ExecutionContext` that are used here. */
export interface NestContext {
  getType(): string;
  getClass(): object;
  getHandler(): object;
  switchToHttp(): { getRequest(): unknown; getResponse(): unknown };
}

/** The functions of reflect-metadata, which Nest loads. */
interface Metadata {
  defineMetadata(key: string | symbol, value: unknown, target: object): void;
  getMetadata(key: string | symbol, target: object): unknown;
}

const metadata = Reflect as unknown as Metadata;
const OPTIONS = Symbol.for("polylimit.nest.options");
/** Where Nest keeps the guards of `@UseGuards`, and the paths and versions of controllers and handlers. */
const GUARDS = "__guards__";
const PATH = "path";
const VERSION = "__version__";

/**
 * Changes the options of every `RateLimitGuard` for a controller or a handler, or exempts it with `false`. Options that are
 * not given are those of the guard; the decorator of a handler replaces the one of its controller. Quotas without a name
 * belong to each route, and to each handler where versions or several paths share a route or a handler.
 *
 * @throws PolylimitError `invalid_argument` if there is no option of a name. A value that is not allowed fails the requests.
 */
export function RateLimit<Req = ExpressRequest, Res = ServerResponse>(
  options: Partial<NestOptions<Req, Res>> | false,
): ClassDecorator & MethodDecorator {
  if (options !== false) checkedOptions("options", options, OPTION_NAMES, "guard");
  return (target: object, _key?: string | symbol, descriptor?: { readonly value?: unknown }) =>
    metadata.defineMetadata(OPTIONS, options, (descriptor?.value as object | undefined) ?? target);
}

type Limit = (request: unknown, response: object, next: (error?: unknown) => void) => void;

/**
 * Limits the requests that it guards: all of an application with `app.useGlobalGuards(guard)` or `APP_GUARD`, those of a
 * controller or a handler with `@UseGuards(guard)`. `req.rateLimit` is the decision. The guard sends the response to a denied
 * request itself, so that no exception filter sees it. An `onDenied` responds as with `polylimit/express` or
 * `polylimit/fastify`. Messages of microservices and of WebSockets, and GraphQL, are not limited.
 *
 * Quotas without a name in a guard of `@UseGuards` belong to each route, those of a global guard to the limiter. Rules of a
 * document may name the `route` in both. A version of Nest or of Express that is not supported fails the first request.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export class RateLimitGuard<Req = ExpressRequest, Res = ServerResponse> {
  readonly #options: NestOptions<Req, Res>;
  readonly #limit: Limit;
  /** The limits of routes, by the options of their decorator, or by those of the guard. */
  readonly #limitsOfRoutes = new WeakMap<object, Limit>();

  constructor(options: NestOptions<Req, Res>) {
    this.#limit = limitOf(options, false);
    this.#options = options;
  }

  canActivate(context: NestContext): boolean | Promise<boolean> {
    if (context.getType() !== "http") return true;
    checkNest(context);
    const targets = [context.getHandler(), context.getClass()];
    const [ofHandler, ofClass] = targets.map((target) => metadata.getMetadata(OPTIONS, target));
    const own = (ofHandler ?? ofClass) as Partial<NestOptions<Req, Res>> | false | undefined;
    if (own === false) return true;
    const isOfRoute = own !== undefined || targets.some((target) => this.#isGuardOf(target));
    const limit = isOfRoute ? this.#limitOfRoute(own ?? this.#options) : this.#limit;
    const http = context.switchToHttp();
    const request = http.getRequest() as object;
    const handler = isOfRoute ? handlerName(context, () => routeOf(request)) : undefined;
    if (handler !== undefined) handlers.set(request, handler);
    // For a denied request the promise stays pending: with `false`, Nest would have an exception filter respond.
    return new Promise((resolve, reject) => {
      limit(request, http.getResponse() as object, (error) => (error === undefined ? resolve(true) : reject(error)));
    });
  }

  #isGuardOf(target: object): boolean {
    const guards = (metadata.getMetadata(GUARDS, target) ?? []) as readonly unknown[];
    return guards.some((guard) => guard === this || guard === this.constructor);
  }

  #limitOfRoute(options: Partial<NestOptions<Req, Res>>): Limit {
    let limit = this.#limitsOfRoutes.get(options);
    if (limit === undefined) {
      limit = limitOf({ ...this.#options, ...options }, true);
      this.#limitsOfRoutes.set(options, limit);
    }
    return limit;
  }
}

/** The names of the handlers of requests whose route does not say which handler they reach. */
const handlers = new WeakMap<object, string>();

/**
 * The name of a handler that has several routes, and the version of one whose route may have several handlers; `undefined` for
 * all others.
 */
function handlerName(context: NestContext, routeOf: () => string | undefined): string | undefined {
  const [handler, type] = [context.getHandler(), context.getClass() as { readonly name?: string; prototype?: object }];
  const targets = [handler, type];
  const version = targets.map((target) => metadata.getMetadata(VERSION, target)).find((found) => found !== undefined);
  const lists = [version, ...targets.map((target) => metadata.getMetadata(PATH, target))];
  if (lists.some((list) => Array.isArray(list) && list.length > 1))
    return `${type.name}.${methodName(type.prototype, handler)}`;
  return version === undefined ? undefined : `${routeOf()} version=${String(version)}`;
}

/** The name of a method of a class. That of its function may be another: decorators replace functions. */
function methodName(prototype: object | null | undefined, method: object): string {
  if (!prototype) return "";
  const found = Object.entries(Object.getOwnPropertyDescriptors(prototype)).find(([, { value }]) => value === method);
  return found?.[0] ?? methodName(Object.getPrototypeOf(prototype), method);
}

/** The route of a request of Express or of Fastify, whose requests have the one of Node as a property. */
function routeOf(request: object): string | undefined {
  return "raw" in request ? fastifyRoute(request as never) : expressRoute(request);
}

function limitOf<Req, Res>(options: NestOptions<Req, Res>, isOfRoute: boolean): Limit {
  const named = isOfRoute ? (request: object) => handlers.get(request) ?? routeOf(request) : undefined;
  const onExpress = limitExpress(options as never, {
    routeOf: named,
    patternOf: routePattern,
    isOnHandler: () => true,
  }) as Limit;
  const onFastify = limitFastify(options as never, named) as Limit;
  return (request, response, next) => {
    // Fastify's reply has the response of Node as a property.
    if (!("setHeader" in response)) return onFastify(request, response, next);
    checkExpress((request as ExpressRequest).app);
    return onExpress(request, response, next);
  };
}

let hasCheckedNest = false;

/** Refuses a version of Nest that is not supported. Nest is known from the first request on. */
function checkNest(context: NestContext): void {
  if (hasCheckedNest) return;
  const isOfContext = ({ ExecutionContextHost }: { readonly ExecutionContextHost?: unknown }) =>
    ExecutionContextHost === context.constructor;
  const version = loadedVersion("helpers/execution-context-host.js", isOfContext) ?? installedVersion("@nestjs/core");
  checkVersion("nest", version);
  hasCheckedNest = true;
}
