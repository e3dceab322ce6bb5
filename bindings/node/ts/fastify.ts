/** A plugin for Fastify, and a hook for single routes. */

import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from "fastify";

import { invalidArgument } from "./argument";
import type { ClientAddressRules } from "./client_address";
import { prefersText } from "./http/accept";
import { addressAlone, addressOf } from "./http/address";
import { Guard } from "./http/guard";
import { checkOptions, type RateLimit, type RateLimitOptions } from "./http/options";

export type { Denial, OutageEvent, RateLimit } from "./http/options";

declare module "fastify" {
  interface FastifyRequest {
    /** What was decided about the request; `undefined` when it was skipped. */
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
 * the body, it is a `preHandler`.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function rateLimitHook(
  options: FastifyRateLimitOptions,
): (request: FastifyRequest, reply: FastifyReply) => Promise<unknown> {
  const guard = new Guard(checkOptions(options), clientOf);
  const { onDenied } = options;
  return async (request, reply) => {
    const verdict = await guard.decide(request.raw, request, reply);
    request.rateLimit = verdict?.rateLimit;
    if (verdict === undefined) return undefined;
    const { problem, rateLimit, fields } = verdict;
    for (const [name, value] of fields) reply.header(name, value);
    if (problem === undefined) {
      if (guard.waitsForResponse) {
        reply.raw.once("finish", () => void guard.finish(verdict, [request, reply], request, reply));
      }
      return undefined;
    }
    reply.code(problem.status);
    if (onDenied !== undefined) {
      await onDenied({ rateLimit: rateLimit as RateLimit, status: problem.status, problem, fields }, request, reply);
      return reply;
    }
    const text = prefersText(request.headers.accept);
    const vary = reply.getHeader("vary");
    reply.header("vary", vary === undefined ? "Accept" : `${[vary].flat().join(", ")}, Accept`);
    return reply.type(text ? problem.textType : problem.jsonType).send(text ? problem.text : problem.json);
  };
}

const plugin: FastifyPluginCallback<FastifyRateLimitOptions> = (fastify, options, done) => {
  try {
    fastify.addHook("onRequest", rateLimitHook(options));
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
    believes = believesEverybody(request);
    believing.set(request.server, believes);
  }
  if (believes) {
    throw invalidArgument(
      "trustProxy is true, so that a client names its own address: set it to networks or to a number of hops, or give " +
        "clientAddress",
    );
  }
  return addressAlone(request.ip);
}

/** A server does not tell its `trustProxy`. So it is asked about a request that came over more proxies than anybody has. */
function believesEverybody(request: FastifyRequest): boolean {
  const [peer, leftmost] = ["192.0.2.1", "198.51.100.1"];
  const socket = { remoteAddress: peer };
  const headers = { "x-forwarded-for": [leftmost, ...Array(64).fill(peer)].join(", ") };
  const asked = Object.create(Object.getPrototypeOf(request), {
    raw: { value: { socket, connection: socket, headers } },
  });
  return (asked as FastifyRequest).ip === leftmost;
}
