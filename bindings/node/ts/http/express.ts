/** Rate limits of requests in Express. */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { ClientAddressRules } from "../client_address";
import { invalidArgument } from "../errors";
import { keyOfAddress, keyOfRequest, peerOf } from "./address";
import { ofNode } from "./by_configuration";
import { type Application, ignoresCase } from "./express_route";
import type { RateLimit } from "./options";
import { limitNode, type NodeOptions, type RouteReader, varyWith } from "./run_guard";
import { checkVersion, loadedVersion } from "./versions";

declare global {
  namespace Express {
    interface Request {
      /** The decision of the last rate limit that did not skip the request; `undefined` when all skipped it. */
      rateLimit?: RateLimit;
    }
  }
}

/** The properties of Express's request that are read here. */
export interface ExpressRequest extends IncomingMessage {
  readonly ip?: string | undefined;
  readonly app?: { readonly settings: Settings };
  readonly params?: unknown;
  readonly originalUrl?: string;
  readonly baseUrl?: string;
  readonly path?: string | null;
}

export type Settings = { readonly [name: string]: unknown };
export type ExpressApplication = Application & { readonly settings: Settings };
type Next = (error?: unknown) => void;

export type ExpressOptions<Req extends ExpressRequest, Res extends ServerResponse> = NodeOptions<Req, Res>;

export type ExpressMiddleware<Req, Res> = (req: Req, res: Res, next: Next) => void;

/**
 * A middleware with these options. Quotas without a name belong to the route that `route.routeOf` returns.
 *
 * @throws PolylimitError `invalid_argument` with the name of the option
 */
export function limitExpress<Req extends ExpressRequest, Res extends ServerResponse>(
  options: ExpressOptions<Req, Res>,
  route: RouteReader<Req> = {},
): ExpressMiddleware<Req, Res> {
  return limitNode(options, {
    clientOf,
    requestOf: (req) => {
      // Express's router reads other things out of some targets than Node does, so that its own result counts.
      const path = req.path === undefined ? (req.originalUrl ?? req.url) : `${req.baseUrl ?? ""}${req.path ?? "/"}`;
      return { ...ofNode(req, path, peerOf(req.socket)), routerPaths: ignoresCase(req) ? IGNORES_CASE : 0 };
    },
    ...route,
    rawOf: (res) => res,
    setField: (res, name, value) => res.setHeader(name, value),
    removeField: (res, name) => res.removeHeader(name),
    sendDenial: ({ status, contentType, vary, body }, res) => {
      res.statusCode = status;
      res.setHeader("content-type", contentType);
      res.setHeader("vary", varyWith(res.getHeader("vary"), vary));
      res.end(body);
    },
    handleDenial: async (handler, { status }, res) => {
      res.statusCode = status;
      await handler();
    },
  });
}

/** The core's bit for a router that ignores case. */
const IGNORES_CASE = 1;

const supported = new WeakSet<object>();

/**
 * Refuses an application of another version.
 *
 * @throws PolylimitError `invalid_argument`
 */
export function checkExpress(app: object | undefined): void {
  if (app === undefined || supported.has(app)) return;
  const { handle } = app as { readonly handle?: unknown };
  const isOfExpress = (exports: { readonly handle?: unknown }) => handle !== undefined && exports.handle === handle;
  checkVersion("express", loadedVersion("lib/application.js", isOfExpress));
  supported.add(app);
}

export function checkTrust(settings: Settings): void {
  if (settings["trust proxy"] !== true) return;
  throw invalidArgument(
    "trust proxy is true, so that a client can choose its own address: set it to networks or to a number of hops, or give " +
      "clientAddress",
  );
}

function clientOf<Req extends ExpressRequest>(rules: ClientAddressRules | undefined, req: Req): string {
  if (rules !== undefined) return keyOfRequest(rules, req);
  const { settings = {} } = req.app ?? {};
  checkTrust(settings);
  return keyOfAddress(settings["trust proxy"] ? req.ip : undefined, req.socket);
}
