/** Rate limits of requests in Fastify. */

import type { FastifyReply, FastifyRequest } from "fastify";
import type { ClientAddressRules } from "../client_address";
import { invalidArgument, type PolylimitError } from "../errors";
import type { DenialResponse } from "../headers";
import { keyOfAddress, keyOfRequest, peerOf } from "./address";
import { ofNode } from "./by_configuration";
import { fastifyPattern, routerPath, routerPaths } from "./fastify_routes";
import type { RateLimitOptions } from "./options";
import { limitNode, varyWith } from "./run_guard";

export type FastifyRateLimitOptions = RateLimitOptions<
  [request: FastifyRequest, reply: FastifyReply],
  [request: FastifyRequest, reply: FastifyReply],
  unknown
>;

export type Hook = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => void;

export { fastifyRoute } from "./fastify_routes";

/**
 * A hook with these options. Quotas without a name belong to the route that `routeOf` returns. `isOnHandler` says whether the hook
 * is called for requests of its own handlers alone, as that of a route is.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function limitFastify(
  options: FastifyRateLimitOptions,
  routeOf?: (request: FastifyRequest) => string | undefined,
  isOnHandler: boolean = routeOf !== undefined,
): Hook {
  return limitNode(options, {
    clientOf,
    requestOf: (request) => {
      const { raw } = request;
      return { ...ofNode(raw, routerPath(request), peerOf(raw.socket)), routerPaths: routerPaths(request) };
    },
    routeOf,
    patternOf: fastifyPattern,
    isOnHandler: () => isOnHandler,
    rawOf: (reply) => reply.raw,
    setField: (reply, name, value) => reply.header(name, value),
    removeField: (reply, name) => reply.removeHeader(name),
    sendDenial,
    handleDenial,
  });
}

/** Sends the value that a handler returns, or the default response if it has neither returned nor sent one. */
async function handleDenial(handler: () => unknown, denial: DenialResponse, reply: FastifyReply): Promise<void> {
  reply.code(denial.status);
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

function sendDenial({ status, contentType, vary, body }: DenialResponse, reply: FastifyReply): void {
  reply.header("vary", varyWith(reply.getHeader("vary"), vary));
  // Fastify adds a charset to the type of text.
  reply.code(status).type(contentType).send(Buffer.from(body));
}

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

export function checkTrust(request: object | undefined): void {
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
