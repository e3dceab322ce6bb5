/** A plugin for Fastify, and a hook for single routes. */

import type { FastifyPluginCallback } from "fastify";
import { notAllowed } from "./arguments";
import { checkTrust, type FastifyRateLimitOptions, fastifyRoute, type Hook, limitFastify } from "./http/fastify";
import {
  configOf,
  FASTIFY_VERSIONS,
  type FastifyLike,
  internalOf,
  limitsOf,
  onLimits,
  versionError,
} from "./http/fastify_routes";
import { needsAddress } from "./http/key_parts";
import type { RateLimit } from "./http/options";

export type { FastifyRateLimitOptions } from "./http/fastify";
export type { Denial, KeyPart, OutageEvent, PolicyCharge, RateLimit } from "./http/options";

/** What a route says about its limits in its `config`. */
export interface FastifyRouteLimits {
  /** The options of the route's rate limit where they differ from the plugin's; `false` exempts the route. */
  polylimit?: Partial<FastifyRateLimitOptions> | false;
  /**
   * The same, unless there is `polylimit`. A program that imports `@fastify/rate-limit` too gives its options here, which the
   * types then allow alone, and those of this package as `polylimit`.
   */
  rateLimit?: Partial<FastifyRateLimitOptions> | OtherRateLimitOptions | false;
}

/** The options of `@fastify/rate-limit` are of this type, so that both packages can declare `rateLimit`. It has none of ours. */
type OtherRateLimitOptions = { readonly errorResponseBuilder?: unknown } & {
  readonly [Name in keyof FastifyRateLimitOptions]?: undefined;
};

declare module "fastify" {
  interface FastifyRequest {
    /** The decision of the last rate limit that did not skip the request; `undefined` when all skipped it. */
    rateLimit?: RateLimit;
  }

  // Two packages can declare one property only with the same type. An inherited one may be declared anew with a narrower type.
  interface FastifyContextConfig extends FastifyRouteLimits {}
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
  const limit = limitFastify(options, fastifyRoute);
  const supported = new WeakSet<object>();
  return (request, reply, done) => {
    // A hook knows its server from the first request on.
    if (!supported.has(request.server)) {
      const error = versionError(request.server);
      if (error !== undefined) return done(error);
      supported.add(request.server);
    }
    return limit(request, reply, done);
  };
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
  const hookOf = (limits: object): Hook => {
    let own = onRoutes.get(limits);
    if (own === undefined) {
      own = limitFastify({ ...defaults, ...limits }, fastifyRoute);
      onRoutes.set(limits, own);
    }
    return own;
  };
  try {
    if (!HOOKS.includes(name)) throw notAllowed("hook", name, `one of ${HOOKS.join(", ")}`);
    // A context with a prefix has a budget of its own.
    const { prefix } = fastify;
    const ofPrefix = prefix === "" ? undefined : () => `ALL ${prefix}/*`;
    const usual = limitFastify(defaults, ofPrefix, false);
    const limit: Hook = (request, reply, proceed) => {
      const limits = limitsOf(configOf(request));
      if (limits === undefined) usual(request, reply, proceed);
      else if (limits === false) proceed();
      else hookOf(limits)(request, reply, proceed);
    };
    if (name === "preParsing") fastify.addHook(name, (request, reply, _, proceed) => limit(request, reply, proceed));
    else fastify.addHook(name as "onRequest", limit);
    // The start fails if the options of a route are not allowed.
    onLimits(fastify as unknown as FastifyLike, hookOf);
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
 * `request.rateLimit` is the decision.
 *
 * Quotas without a name belong to the limiter, those of a plugin that is registered in a context with a prefix to that prefix, and
 * those of a route's own options to the route. The client's address is found by `clientAddress`, or else by the server's
 * `trustProxy`, which must not be `true`.
 */
export const rateLimit: FastifyPluginCallback<FastifyPluginOptions> = Object.assign(plugin, {
  // The hook belongs to the instance that registers the plugin, and not to an encapsulated context.
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "polylimit",
  // Fastify refuses to register the plugin in any other version, and names both.
  [Symbol.for("plugin-meta")]: { name: "polylimit", fastify: FASTIFY_VERSIONS },
});

/** The prototype of a server's requests, where Fastify 4 and 5 keep it. If it is not there, the first request is checked. */
function requestOf(fastify: object): object | undefined {
  return internalOf<{ readonly prototype?: object }>(fastify, "fastify.Request")?.prototype;
}
