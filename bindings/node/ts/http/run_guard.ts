/** Limits in frameworks on Node's servers whose middleware calls `next`. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { Key } from "../arguments";
import type { ClientAddressRules } from "../client_address";
import { invalidArgument } from "../errors";
import type { DenialResponse, HeaderFields } from "../headers";
import type { HttpRequest } from "./by_configuration";
import { Guard, type GuardResult } from "./guard";
import { checkOptions, isPromise, type MaybePromise, type RateLimit, type RateLimitOptions } from "./options";
import { readWritten, whenDone } from "./response_end";

/** The properties of requests that are read here. */
interface NodeRequest extends Pick<IncomingMessage, "headers"> {
  readonly socket?: IncomingMessage["socket"];
  readonly method?: string | undefined;
  readonly params?: unknown;
}

type Limited = { rateLimit?: RateLimit; readonly user?: unknown };

/** What a framework knows of the route of a request; all of it may be absent. */
export interface RouteReader<Req> {
  /** The route to which quotas without a name belong. */
  readonly routeOf?: ((req: Req) => string | undefined) | undefined;
  /** The pattern that the router has matched, as `FrameworkAdapter` has it. */
  readonly patternOf?: ((req: Req) => string | undefined) | undefined;
  /** Whether the limit belongs to a handler, which then answers the preflight requests that get there. */
  readonly isOnHandler?: ((req: Req) => boolean) | undefined;
}

/** What differs between the frameworks. */
export interface NodeFramework<Req, Res> extends RouteReader<Req> {
  /** The key of the client, found by the rules if there are any. */
  readonly clientOf: (rules: ClientAddressRules | undefined, req: Req) => Key;
  readonly requestOf: (req: Req) => HttpRequest;
  readonly rawOf: (res: Res) => NodeResponse;
  readonly setField: (res: Res, name: string, value: string) => unknown;
  readonly removeField: (res: Res, name: string) => unknown;
  /** Sends the default response to a request that does not proceed. */
  readonly sendDenial: (denial: DenialResponse, res: Res) => void;
  /** Has the options' handler respond to such a request. */
  readonly handleDenial: (handler: () => unknown, denial: DenialResponse, res: Res) => Promise<unknown>;
}

export type NodeOptions<Req, Res> = RateLimitOptions<[req: Req, res: Res], [req: Req, res: Res], unknown>;

/** A middleware, or a hook, with these options. */
export function limitNode<Req extends NodeRequest, Res>(
  options: NodeOptions<Req, Res>,
  framework: NodeFramework<Req, Res>,
): (req: Req, res: Res, next: (error?: never) => void) => void {
  const guard = new Guard<[req: Req, res: Res], [req: Req, res: Res], unknown>(checkOptions(options), {
    clientOf: framework.clientOf,
    requestOf: framework.requestOf,
    methodOf: ({ method = "GET" }) => method,
    headerOf: (name, req) => headerLine(req, name),
    routeOf: framework.routeOf,
    patternOf: framework.patternOf,
    isOnHandler: framework.isOnHandler,
    userOf: (req) => (req as Limited).user,
    pathOf: (name, { params }) => (params as Record<string, string | undefined> | undefined)?.[name],
  });

  /** Returns whether the request proceeds. */
  function apply(result: GuardResult<unknown> | undefined, req: Req, res: Res): boolean | Promise<boolean> {
    if (result === undefined) return true;
    if (result.rateLimit !== undefined) (req as Limited).rateLimit = result.rateLimit;
    for (const name of result.outdated) framework.removeField(res, name);
    for (const field of result.fields) framework.setField(res, field[0], field[1]);
    const { denial, handleDenial } = result;
    addCors(
      result,
      (name) => (res as FieldReader).getHeader(name),
      (name, value) => framework.setField(res, name, value),
    );
    if (denial === undefined) {
      if (result.holds) {
        const reader = guard.reader(result);
        if (reader !== undefined) readWritten(framework.rawOf(res), reader);
        whenDone(req, framework.rawOf(res), (hasResponse) => guard.end(result, hasResponse ? [req, res] : undefined));
      }
      if (guard.waitsForResponse) beforeHead(framework.rawOf(res), () => guard.finish(result, req, res));
      return true;
    }
    if (handleDenial !== undefined) return framework.handleDenial(handleDenial, denial, res).then(() => false);
    framework.sendDenial(denial, res);
    return false;
  }

  return (req, res, next) => runGuard(guard, req, (req as Limited).rateLimit, [req, res], apply, next);
}

/** Applies the result of a guard to a response. Returns whether the request proceeds. */
type ApplyResult<Context extends unknown[]> = (
  result: GuardResult<unknown> | undefined,
  ...context: Context
) => boolean | Promise<boolean>;

/**
 * Has a guard decide, and calls `next` when the request proceeds or an error occurs. It creates no promise when the decision
 * is available at once.
 */
function runGuard<Context extends unknown[], Finished extends unknown[]>(
  guard: Guard<Context, Finished, unknown>,
  request: object,
  previous: unknown,
  context: Context,
  apply: ApplyResult<Context>,
  next: (error?: never) => void,
): void {
  let proceeds: boolean | Promise<boolean>;
  try {
    const result = guard.decide(request, previous, context);
    proceeds = isPromise(result) ? applyLater(result, context, apply) : apply(result, ...context);
  } catch (error) {
    next(errorFor(error));
    return;
  }
  if (typeof proceeds === "boolean") {
    if (proceeds) next();
  } else {
    proceeds.then(
      (value) => {
        if (value) next();
      },
      (error) => next(errorFor(error)),
    );
  }
}

/** A value that `next` treats as an error. With a falsy one the request would proceed without a decision. */
function errorFor(thrown: unknown): never {
  return (thrown || invalidArgument("a function of the rate limit's options failed without an error")) as never;
}

async function applyLater<Context extends unknown[]>(
  result: PromiseLike<GuardResult<unknown> | undefined>,
  context: Context,
  apply: ApplyResult<Context>,
): Promise<boolean> {
  return apply(await result, ...context);
}

/** The properties of Node's response (HTTP/1 or HTTP/2) that are used here. */
type NodeResponse = Pick<
  ServerResponse,
  | "destroyed"
  | "writableFinished"
  | "headersSent"
  | "once"
  | "off"
  | "writeHead"
  | "setHeader"
  | "statusCode"
  | "write"
  | "end"
  | "getHeaders"
> & { readonly stream?: { readonly destroyed: boolean } };

/**
 * Calls `finish` when the status of the response is known and its fields are not sent yet. The fields that it returns are
 * sent. It is not called when the client left before there was a response: HTTP/2 then has a status that no handler has set.
 */
export function beforeHead(response: NodeResponse, finish: () => MaybePromise<HeaderFields | undefined>): void {
  const { writeHead } = response;
  response.writeHead = (...args: unknown[]) => {
    response.writeHead = writeHead;
    if (typeof args[0] === "number") response.statusCode = args[0];
    const isGone = response.destroyed || response.stream?.destroyed;
    const fields = isGone ? undefined : finish();
    if (fields !== undefined && !isPromise(fields)) {
      // The fields of the call, in an object, take precedence over those of the response.
      const last = args[args.length - 1];
      const given = typeof last === "object" && !Array.isArray(last) ? (last as Record<string, unknown>) : {};
      for (const [name, value] of fields) {
        if (name in given) given[name] = value;
        else response.setHeader(name, value);
      }
    }
    return (writeHead as (...args: unknown[]) => ServerResponse).apply(response, args);
  };
}

/** The responses of Node and Fastify have this function. */
interface FieldReader {
  getHeader(name: string): string | number | string[] | undefined;
}

/** Adds what a browser needs to show a denial to a page of another origin, unless the program has already done so. */
export function addCors(
  { cors }: Pick<GuardResult<unknown>, "cors">,
  get: (name: string) => string | number | readonly string[] | null | undefined,
  set: (name: string, value: string) => unknown,
): void {
  if (cors.length === 0 || (get("access-control-allow-origin") ?? undefined) !== undefined) return;
  for (const [name, value] of cors) set(name, name === "vary" ? varyWith(get(name) ?? undefined, value) : value);
}

/** Sets the fields of a limit, and removes those that do not hold any more. */
export function setFields(
  response: Pick<ServerResponse, "setHeader" | "removeHeader">,
  { fields, outdated }: GuardResult<unknown>,
): void {
  for (const name of outdated) response.removeHeader(name);
  for (const field of fields) response.setHeader(field[0], field[1]);
}

/** The lines of a header of Node's request, joined. */
export function headerLine({ headers }: Pick<IncomingMessage, "headers">, name: string): string | undefined {
  const lines = headers[name];
  return Array.isArray(lines) ? lines.join(", ") : lines;
}

/** A `vary` field with another name. */
export function varyWith(vary: number | string | readonly string[] | undefined, name: string): string {
  return vary === undefined ? name : `${[vary].flat().join(", ")}, ${name}`;
}
