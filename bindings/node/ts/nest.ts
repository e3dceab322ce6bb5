/** A guard for NestJS on Express or Fastify, and a decorator that changes its options for a controller or a handler. */

import type { ServerResponse } from "node:http";

import { checkedOptions } from "./arguments";
import { type ExpressRequest, expressRoute, limitExpress } from "./http/express";
import { fastifyRoute, limitFastify } from "./http/fastify";
import { OPTION_NAMES, type RateLimitOptions } from "./http/options";

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
/** Where Nest keeps the guards of `@UseGuards`. */
const GUARDS = "__guards__";

/**
 * Changes the options of every `RateLimitGuard` for a controller or a handler, or exempts it with `false`. Options that are
 * not given are those of the guard; the decorator of a handler replaces the one of its controller. Quotas without a name
 * belong to each route.
 *
 * @throws PolylimitError `invalid_argument` if there is no option of a name. A value that is not allowed fails the requests.
 */
export function RateLimit<Req = ExpressRequest, Res = ServerResponse>(
  options: Partial<NestOptions<Req, Res>> | false,
): ClassDecorator & MethodDecorator {
  if (options !== false) checkedOptions("options", options, OPTION_NAMES);
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
 * Quotas without a name in a guard of `@UseGuards` belong to each route, those of a global guard to the limiter.
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
    const targets = [context.getHandler(), context.getClass()];
    const [ofHandler, ofClass] = targets.map((target) => metadata.getMetadata(OPTIONS, target));
    const own = (ofHandler ?? ofClass) as Partial<NestOptions<Req, Res>> | false | undefined;
    if (own === false) return true;
    const isOfRoute = own !== undefined || targets.some((target) => this.#isGuardOf(target));
    const limit = isOfRoute ? this.#limitOfRoute(own ?? this.#options) : this.#limit;
    const http = context.switchToHttp();
    // For a denied request the promise stays pending: with `false`, Nest would have an exception filter respond.
    return new Promise((resolve, reject) => {
      limit(http.getRequest(), http.getResponse() as object, (error) =>
        error === undefined ? resolve(true) : reject(error),
      );
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

function limitOf<Req, Res>(options: NestOptions<Req, Res>, isOfRoute: boolean): Limit {
  const onExpress = limitExpress(options as never, isOfRoute ? expressRoute : undefined) as Limit;
  const onFastify = limitFastify(options as never, isOfRoute ? fastifyRoute : undefined) as Limit;
  // Fastify's reply has the response of Node as a property.
  return (request, response, next) => ("setHeader" in response ? onExpress : onFastify)(request, response, next);
}
