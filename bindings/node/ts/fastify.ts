/** A plugin for Fastify, and a hook for single routes. */

import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from "fastify";

import { invalidArgument } from "./argument";
import type { ClientAddressRules } from "./client_address";
import type { PolylimitError } from "./failure";
import type { Refusal } from "./headers";
import { addressAlone, addressOf } from "./http/address";
import { onceDone } from "./http/done";
import { Guard, type Verdict } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";
import { pass } from "./http/pass";

export type { Denial, RateLimit } from "./http/options";

declare module "fastify" {
  interface FastifyRequest {
    /** What was decided about the request, by the last that did not skip it; `undefined` when all did. */
    rateLimit?: RateLimit;
  }
}

export type FastifyRateLimitOptions = RateLimitOptions<
  [request: FastifyRequest, reply: FastifyReply],
  [request: FastifyRequest, reply: FastifyReply],
  unknown
>;

/**
 * A hook that limits the requests of one route: `{ onRequest: rateLimitHook({ ... }) }`. Where the key or the cost needs
 * the body, it is a `preHandler`. Quotas without a name belong to the route of the request.
 *
 * What `onDenied` and `onOutage` return is sent, with the status of the denial unless they set another, as from a handler
 * of Fastify. `undefined` is for one that has sent the answer itself; when it has not, the problem document or text is
 * sent. One that sends it later returns `reply`, or a promise.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimitHook(
  options: FastifyRateLimitOptions,
): (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => void {
  return hook(options, routeOf);
}

function hook(
  options: FastifyRateLimitOptions,
  routeOf?: (request: FastifyRequest) => string | undefined,
): (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => void {
  const guard = new Guard(checkOptions(options), { clientOf, acceptOf: (request) => request.headers.accept, routeOf });

  /** Whether the request goes on. */
  function passes(verdict: Verdict<unknown> | undefined, request: FastifyRequest, reply: FastifyReply) {
    if (verdict === undefined) return true;
    request.rateLimit = verdict.rateLimit;
    for (const field of verdict.fields) reply.header(field[0], field[1]);
    const { refusal, instead } = verdict;
    if (refusal === undefined) {
      if (guard.waitsForResponse) onceDone(reply.raw, () => void guard.finish(verdict, request, reply));
      return true;
    }
    reply.code(refusal.status);
    if (instead === undefined) {
      answer(refusal, reply);
      return false;
    }
    return answerInstead(instead, refusal, reply).then(() => false);
  }

  return (request, reply, done) => pass(guard, request.rateLimit, [request, reply], passes, done);
}

/** The method and the path of the route; `undefined` for a request that none was found for. */
function routeOf({ routeOptions }: FastifyRequest): string | undefined {
  return routeOptions?.url === undefined ? undefined : `${[routeOptions.method].flat().join(",")} ${routeOptions.url}`;
}

/** Sends what a handler returns, or the usual answer when it has neither returned nor sent one. */
async function answerInstead(instead: () => unknown, refusal: Refusal, reply: FastifyReply): Promise<void> {
  // What hooks and streams still hold does not show in the reply.
  const { send } = reply;
  let isSent = false;
  reply.send = (payload) => {
    isSent = true;
    return send.call(reply, payload);
  };
  let payload: unknown;
  try {
    payload = await instead();
  } finally {
    reply.send = send;
  }
  if (isSent || reply.sent || reply.raw.headersSent || reply.raw.destroyed) return;
  if (payload === undefined) answer(refusal, reply);
  else reply.send(payload);
}

function answer({ contentType, body }: Refusal, reply: FastifyReply): void {
  const vary = reply.getHeader("vary");
  reply.header("vary", vary === undefined ? "Accept" : `${[vary].flat().join(", ")}, Accept`);
  reply.type(contentType).send(body);
}

const plugin: FastifyPluginCallback<FastifyRateLimitOptions> = (fastify, options, done) => {
  try {
    fastify.addHook("onRequest", hook(options));
    if (options.key === undefined && options.clientAddress === undefined) checkTrust(requestOf(fastify));
  } catch (error) {
    return done(error as Error);
  }
  if (!fastify.hasRequestDecorator("rateLimit")) fastify.decorateRequest("rateLimit", undefined);
  return done();
};

/**
 * Limits every request of the instance that it is registered in: `app.register(rateLimit, { ... })`.
 * `request.rateLimit` carries the decision. The client's address is found by `clientAddress`, or else as the server's
 * `trustProxy` says, which must not be `true`.
 */
export const rateLimit: FastifyPluginCallback<FastifyRateLimitOptions> = Object.assign(plugin, {
  // It is for whoever registers it, and not for a scope of its own.
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "polylimit",
});

const believing = new WeakMap<object, boolean>();

function clientOf(rules: ClientAddressRules | undefined, request: FastifyRequest): string {
  if (rules !== undefined) return addressOf(rules, request.raw);
  let believes = believing.get(request.server);
  if (believes === undefined) {
    believes = believesEverybody(Object.getPrototypeOf(request));
    believing.set(request.server, believes);
  }
  if (believes) throw trusting();
  return addressAlone(request.ip, request.raw.socket);
}

/** What a server's requests are made of, if it is where Fastify 4 and 5 keep it; otherwise the first request tells. */
function requestOf(fastify: object): object | undefined {
  for (let at: object | null = fastify; at !== null; at = Object.getPrototypeOf(at)) {
    const symbol = Object.getOwnPropertySymbols(at).find(({ description }) => description === "fastify.Request");
    if (symbol !== undefined) return (at as Record<symbol, { readonly prototype?: object }>)[symbol]?.prototype;
  }
  return undefined;
}

function checkTrust(request: object | undefined): void {
  if (request !== undefined && believesEverybody(request)) throw trusting();
}

function trusting(): PolylimitError {
  return invalidArgument(
    "trustProxy is true, so that a client names its own address: set it to networks or to a number of hops, or give " +
      "clientAddress",
  );
}

/** A server does not tell its `trustProxy`. So it is asked about a request that came over more proxies than any has. */
function believesEverybody(prototype: object): boolean {
  const [peer, leftmost] = ["192.0.2.1", "198.51.100.1"];
  const socket = { remoteAddress: peer };
  const headers = { "x-forwarded-for": [leftmost, ...Array(64).fill(peer)].join(", ") };
  const asked = Object.create(prototype, { raw: { value: { socket, connection: socket, headers } } });
  return (asked as FastifyRequest).ip === leftmost;
}
