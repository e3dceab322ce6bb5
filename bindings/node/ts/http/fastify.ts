/** Rate limits of requests in Fastify. */

import type { FastifyReply, FastifyRequest } from "fastify";
import type { ClientAddressRules } from "../client_address";
import { invalidArgument, type PolylimitError } from "../errors";
import type { DenialResponse } from "../headers";
import { keyOfAddress, keyOfRequest } from "./address";
import { Guard, type GuardResult } from "./guard";
import { checkOptions, type RateLimitOptions } from "./options";
import { beforeHead, headerLine, runGuard, varyWith } from "./run_guard";

export type FastifyRateLimitOptions = RateLimitOptions<
  [request: FastifyRequest, reply: FastifyReply],
  [request: FastifyRequest, reply: FastifyReply],
  unknown
>;

export type Hook = (request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void) => void;

/**
 * A hook with these options. Quotas without a name belong to the route that `routeOf` returns.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function limitFastify(
  options: FastifyRateLimitOptions,
  routeOf?: (request: FastifyRequest) => string | undefined,
): Hook {
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
export function fastifyRoute({ routeOptions }: FastifyRequest): string | undefined {
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
