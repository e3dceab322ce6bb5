/** A plugin for Fastify, and a hook for single routes. */

import type { FastifyPluginCallback } from "fastify";
import { notAllowed } from "./arguments";
import { checkTrust, type FastifyRateLimitOptions, fastifyRoute, type Hook, limitFastify } from "./http/fastify";
import { needsAddress } from "./http/key_parts";
import type { RateLimit } from "./http/options";

export type { FastifyRateLimitOptions } from "./http/fastify";
export type { Denial, KeyPart, OutageEvent, RateLimit } from "./http/options";

declare module "fastify" {
  interface FastifyRequest {
    /** The decision of the last rate limit that did not skip the request; `undefined` when all skipped it. */
    rateLimit?: RateLimit;
  }

  interface FastifyContextConfig {
    /** The options of the route's rate limit where they differ from the plugin's; `false` exempts the route. */
    rateLimit?: Partial<FastifyRateLimitOptions> | false;
  }
}

/**
 * A hook that limits the requests of one route: `{ onRequest: rateLimitHook({ ... }) }`. If the key or the cost depends on
 * the body, use it as `preHandler`. Quotas without a name belong to the route of the request.
 *
 * The value that `onDenied` returns is sent as from a handler of Fastify, with the status of the denial unless it sets
 * another. It returns `undefined` after it has sent the response itself; if it has not, the problem document or text is sent.
 * A handler that sends it later returns `reply`, or a promise.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimitHook(options: FastifyRateLimitOptions): Hook {
  return limitFastify(options, fastifyRoute);
}

const HOOKS = ["onRequest", "preParsing", "preValidation", "preHandler"] as const;

/** The options of the plugin. */
export interface FastifyPluginOptions extends FastifyRateLimitOptions {
  /** When requests are decided: `onRequest` by default, and `preHandler` if the key or the cost depends on the body. */
  readonly hook?: (typeof HOOKS)[number];
}

const plugin: FastifyPluginCallback<FastifyPluginOptions> = (
  fastify,
  { hook: name = "onRequest", ...defaults },
  done,
) => {
  /** The hooks of routes with options of their own. */
  const onRoutes = new WeakMap<object, Hook>();
  const hookOf = (config: Partial<FastifyRateLimitOptions>): Hook => {
    let own = onRoutes.get(config);
    if (own === undefined) {
      own = limitFastify({ ...defaults, ...config }, fastifyRoute);
      onRoutes.set(config, own);
    }
    return own;
  };
  try {
    if (!HOOKS.includes(name)) throw notAllowed("hook", name, `one of ${HOOKS.join(", ")}`);
    const usual = limitFastify(defaults);
    const limit: Hook = (request, reply, proceed) => {
      const config = request.routeOptions?.config?.rateLimit;
      if (config === undefined) usual(request, reply, proceed);
      else if (config === false) proceed();
      else hookOf(config)(request, reply, proceed);
    };
    if (name === "preParsing") fastify.addHook(name, (request, reply, _, proceed) => limit(request, reply, proceed));
    else fastify.addHook(name as "onRequest", limit);
    // The start fails if the options of a route are not allowed.
    fastify.addHook("onRoute", ({ config }) => {
      if (config?.rateLimit) hookOf(config.rateLimit);
    });
    if (needsAddress(defaults)) checkTrust(requestOf(fastify));
  } catch (error) {
    return done(error as Error);
  }
  if (!fastify.hasRequestDecorator("rateLimit")) fastify.decorateRequest("rateLimit", undefined);
  return done();
};

/**
 * Limits every request of the instance that registers it: `app.register(rateLimit, { ... })`. A route may change the options
 * for itself, or be exempt: `app.get(path, { config: { rateLimit: { policy: "5/minute" } } }, handler)`, or `rateLimit: false`.
 * `request.rateLimit` is the decision. The client's address is found by `clientAddress`, or else by the server's
 * `trustProxy`, which must not be `true`.
 */
export const rateLimit: FastifyPluginCallback<FastifyPluginOptions> = Object.assign(plugin, {
  // The hook belongs to the instance that registers the plugin, and not to an encapsulated context.
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "polylimit",
});

/** The prototype of a server's requests, where Fastify 4 and 5 keep it. If it is not there, the first request is checked. */
function requestOf(fastify: object): object | undefined {
  for (let at: object | null = fastify; at !== null; at = Object.getPrototypeOf(at)) {
    const symbol = Object.getOwnPropertySymbols(at).find(({ description }) => description === "fastify.Request");
    if (symbol !== undefined) return (at as Record<symbol, { readonly prototype?: object }>)[symbol]?.prototype;
  }
  return undefined;
}
