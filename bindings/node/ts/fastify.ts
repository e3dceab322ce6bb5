/** A plugin for Fastify, and a hook for single routes. */

import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from "fastify";
import { notAllowed } from "./arguments";
import type { ClientAddressRules } from "./client_address";
import { invalidArgument, type PolylimitError } from "./errors";
import type { DenialResponse } from "./headers";
import { keyOfAddress, keyOfRequest } from "./http/address";
import { Guard, type GuardResult } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { beforeHead, headerLine, runGuard, varyWith } from "./http/run_guard";

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

export type FastifyRateLimitOptions = RateLimitOptions<
  [request: FastifyRequest, reply: FastifyReply],
  [request: FastifyRequest, reply: FastifyReply],
  unknown
>;

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
  return hook(options, routeOf);
}

type Hook = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => void;

function hook(options: FastifyRateLimitOptions, routeOf?: (request: FastifyRequest) => string | undefined): Hook {
  const guard = new Guard(checkOptions(options), {
    clientOf,
    methodOf: (request) => request.method,
    headerOf: (name, request) => headerLine(request, name),
    routeOf,
    userOf: (request) => (request as { readonly user?: unknown }).user,
    pathOf: (name, { params }) => (params as Record<string, string | undefined> | undefined)?.[name],
  });

  /** Returns whether the request proceeds. */
  function apply(result: GuardResult<unknown> | undefined, request: FastifyRequest, reply: FastifyReply) {
    if (result === undefined) return true;
    if (result.rateLimit !== undefined) request.rateLimit = result.rateLimit;
    for (const name of result.outdated) reply.removeHeader(name);
    for (const field of result.fields) reply.header(field[0], field[1]);
    const { denial, handleDenial } = result;
    if (denial === undefined) {
      if (guard.waitsForResponse) beforeHead(reply.raw, () => guard.finish(result, request, reply));
      return true;
    }
    reply.code(denial.status);
    if (handleDenial === undefined) {
      sendDenial(denial, reply);
      return false;
    }
    return runDenialHandler(handleDenial, denial, reply).then(() => false);
  }

  return (request, reply, done) => runGuard(guard, request, request.rateLimit, [request, reply], apply, done);
}

/** The method and the path of the route; `undefined` for a request that matches none. */
function routeOf({ routeOptions }: FastifyRequest): string | undefined {
  return routeOptions?.url === undefined ? undefined : `${[routeOptions.method].flat().join(",")} ${routeOptions.url}`;
}

/** Sends the value that a handler returns, or the default response if it has neither returned nor sent one. */
async function runDenialHandler(handler: () => unknown, denial: DenialResponse, reply: FastifyReply): Promise<void> {
  // `send` is wrapped because `reply.sent` stays false while a hook or a stream delays the payload.
  const { send } = reply;
  let isSent = false;
  reply.send = (payload) => {
    isSent = true;
    return send.call(reply, payload);
  };
  let payload: unknown;
  try {
    payload = await handler();
  } finally {
    reply.send = send;
  }
  if (isSent || reply.sent || reply.raw.headersSent || reply.raw.destroyed) return;
  if (payload === undefined) sendDenial(denial, reply);
  else reply.send(payload);
}

function sendDenial({ contentType, vary, body }: DenialResponse, reply: FastifyReply): void {
  reply.header("vary", varyWith(reply.getHeader("vary"), vary));
  // Fastify adds a charset to the type of text.
  reply.type(contentType).send(Buffer.from(body));
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
      own = hook({ ...defaults, ...config }, routeOf);
      onRoutes.set(config, own);
    }
    return own;
  };
  try {
    if (!HOOKS.includes(name)) throw notAllowed("hook", name, `one of ${HOOKS.join(", ")}`);
    const usual = hook(defaults);
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

/** Whether the key is the address that the server's settings determine. */
function needsAddress({ key, clientAddress }: FastifyRateLimitOptions): boolean {
  return (key === undefined || [key].flat().includes("address")) && clientAddress === undefined;
}

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

const trustsAll = new WeakMap<object, boolean>();

function clientOf(rules: ClientAddressRules | undefined, request: FastifyRequest): string {
  if (rules !== undefined) return keyOfRequest(rules, request.raw);
  let isTrustingAll = trustsAll.get(request.server);
  if (isTrustingAll === undefined) {
    isTrustingAll = trustsEveryProxy(Object.getPrototypeOf(request));
    trustsAll.set(request.server, isTrustingAll);
  }
  if (isTrustingAll) throw trustError();
  return keyOfAddress(request.ip, request.raw.socket);
}

/** The prototype of a server's requests, where Fastify 4 and 5 keep it. If it is not there, the first request is checked. */
function requestOf(fastify: object): object | undefined {
  for (let at: object | null = fastify; at !== null; at = Object.getPrototypeOf(at)) {
    const symbol = Object.getOwnPropertySymbols(at).find(({ description }) => description === "fastify.Request");
    if (symbol !== undefined) return (at as Record<symbol, { readonly prototype?: object }>)[symbol]?.prototype;
  }
  return undefined;
}

function checkTrust(request: object | undefined): void {
  if (request !== undefined && trustsEveryProxy(request)) throw trustError();
}

function trustError(): PolylimitError {
  return invalidArgument(
    "trustProxy is true, so that a client can choose its own address: set it to networks or to a number of hops, or give " +
      "clientAddress",
  );
}

/** A server does not expose its `trustProxy`. This tests it with a request that has passed through 64 untrusted proxies. */
function trustsEveryProxy(prototype: object): boolean {
  const [peer, leftmost] = ["192.0.2.1", "198.51.100.1"];
  const socket = { remoteAddress: peer };
  const headers = { "x-forwarded-for": [leftmost, ...Array(64).fill(peer)].join(", ") };
  const probe = Object.create(prototype, { raw: { value: { socket, connection: socket, headers } } });
  return (probe as FastifyRequest).ip === leftmost;
}
