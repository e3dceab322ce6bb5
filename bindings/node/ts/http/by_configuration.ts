/** Limits that are those of the limiter's configuration: what its rules know about a request. */

import type { AttributeRow } from "../addon";
import type { Key } from "../arguments";
import { attributeRows } from "../configuration";
import { invalidArgument } from "../errors";
import { nativeLimiter } from "../native_limiters";

/** What every framework knows of a request. */
export interface HttpRequest {
  readonly method: string;
  /** As the client sent it, or as the router reads it. */
  readonly path: string;
  /** How the router compares paths, as the core's bits; nothing for byte by byte. */
  readonly routerPaths?: number;
  /** The address at the other end of the socket; `undefined` for a Unix socket, and where it is not known. */
  readonly peer: string | undefined;
  /** Names and values in turn. */
  readonly headers: readonly string[];
}

/** What an application knows of a request, by name. */
export type AppAttributes = Readonly<Record<string, Key | null | undefined>>;

type Options = { readonly limiter: object; readonly policy?: unknown; readonly attributes?: unknown };

/** Whether the configuration of the limiter decides: it has one, and no policy is given. */
export function isByConfiguration({ limiter, policy }: Options): boolean {
  if (policy !== undefined) return false;
  const status = nativeLimiter(limiter).configuration();
  return status !== undefined && status !== null;
}

/** What the rules of a configuration say in place of the options. */
const OF_RULES = ["scope", "key", "missingKey", "cost", "spent", "clientAddress"];

/** Refuses options that have no effect. Returns whether the configuration decides. */
export function checkByConfiguration(options: Options): boolean {
  if (!isByConfiguration(options)) {
    if (options.attributes === undefined) return false;
    throw invalidArgument(
      "attributes is given, and no configuration decides: give the limiter one, and leave policy out",
    );
  }
  const given = OF_RULES.find((name) => (options as Record<string, unknown>)[name] !== undefined);
  if (given === undefined) return true;
  throw invalidArgument(
    `${given} is given, and the limiter's configuration decides: leave it to the rules of the document, or give policy too`,
  );
}

/** The request as text: method, path, peer and properties of the router, then names and values of the headers, each on a line. */
export function requestText({ method, path, peer, routerPaths = 0, headers }: HttpRequest): string {
  return [method, path, peer ?? "", routerPaths, ...headers].join("\n");
}

/** The attributes of the application; the framework's user and route are among them, unless the application has its own. */
export function appRows(
  attributes: AppAttributes | null | undefined,
  user: string | undefined,
  route: string | undefined,
): AttributeRow[] {
  if (user === undefined && route === undefined) return attributeRows(attributes ?? {});
  return attributeRows({ user, route, ...attributes });
}

/** The properties of Node's request that are read here. */
interface NodeMessage {
  readonly method?: string | undefined;
  readonly rawHeaders?: readonly string[];
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

/** A request of Node's servers. */
export function ofNode(message: NodeMessage, path: string | undefined, peer: string | undefined): HttpRequest {
  const { method = "GET", rawHeaders, headers } = message;
  return { method, path: path ?? "/", peer, headers: rawHeaders ?? pairsOf(headers) };
}

/** A `Request`. Its URL has no fragment, and no escapes are decoded. */
export function ofFetch(request: Request, peer: string | undefined): HttpRequest {
  const { method, url, headers } = request;
  const start = url.indexOf("/", url.indexOf("//") + 2);
  const pairs: string[] = [];
  headers.forEach((value, name) => {
    pairs.push(name, value);
  });
  return { method, path: start < 0 ? "/" : url.slice(start), peer, headers: pairs };
}

function pairsOf(headers: NodeMessage["headers"]): string[] {
  const lines = Object.entries(headers).map(([name, values]) =>
    [values ?? []].flat().flatMap((value) => [name, value]),
  );
  return lines.flat();
}
