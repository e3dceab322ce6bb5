/** How a guard reads the request of a framework, and the parts of a key from it. */

import { type Key, notAllowed } from "../arguments";
import type { ClientAddressRules } from "../client_address";
import { type HttpRequest, isByConfiguration } from "./by_configuration";

/** How a framework's request is read. */
export interface FrameworkAdapter<Context extends unknown[]> {
  /** The key of the client, found by the rules if there are any. */
  readonly clientOf: (rules: ClientAddressRules | undefined, ...context: Context) => Key;
  readonly methodOf: (...context: Context) => string;
  /** The request as it came, for a configuration. */
  readonly requestOf: (...context: Context) => HttpRequest;
  /** All lines of a header, joined. */
  readonly headerOf: (name: string, ...context: Context) => string | undefined;
  /** The route of the guard, as the same text in every process; `undefined` for a guard before all routes. */
  readonly routeOf?: (...context: Context) => string | undefined;
  /** The authenticated user, and a parameter of the path, where the framework knows them. */
  readonly userOf?: (...context: Context) => unknown;
  readonly pathOf?: (name: string, ...context: Context) => string | undefined;
}

/**
 * The function that reads a part of the key.
 *
 * @throws PolylimitError `invalid_argument` for a part that the framework does not know
 */
export function partReader<Context extends unknown[]>(
  kind: string,
  name: string,
  { clientOf, headerOf, userOf, pathOf }: FrameworkAdapter<Context>,
  rules: ClientAddressRules | undefined,
): (context: Context) => string | undefined {
  const absent = () => notAllowed("key", undefined, `a part that this framework knows, and not ${kind}`);
  switch (kind) {
    case "address":
      return (context) => String(clientOf(rules, ...context));
    case "header":
      return (context) => headerOf(name, ...context);
    case "cookie":
      return (context) => cookie(headerOf("cookie", ...context), name);
    case "user":
      if (userOf === undefined) throw absent();
      return (context) => userText(userOf(...context));
    default:
      if (pathOf === undefined) throw absent();
      return (context) => pathOf(name, ...context);
  }
}

/** Whether the key is the client's address, or has it as a part, and the framework's settings find it. */
export function needsAddress(options: {
  readonly limiter: object;
  readonly policy?: unknown;
  readonly key?: unknown;
  readonly clientAddress?: unknown;
}): boolean {
  const { key, clientAddress } = options;
  if (isByConfiguration(options)) return false;
  return (key === undefined || [key].flat().includes("address")) && clientAddress === undefined;
}

/** The value of a cookie as the client sent it. */
function cookie(cookies: string | undefined, name: string): string | undefined {
  const pair = cookies?.split(/; */).find((one) => one.startsWith(`${name}=`));
  return pair?.slice(name.length + 1);
}

/** A user as text: the text or number itself, or the `id` or `sub` of an object. */
function userText(user: unknown): string | undefined {
  if (typeof user === "string" || typeof user === "number" || typeof user === "bigint") return String(user);
  const { id, sub } = (user ?? {}) as { readonly id?: unknown; readonly sub?: unknown };
  const found = id ?? sub;
  return found === undefined || found === null ? undefined : String(found);
}
