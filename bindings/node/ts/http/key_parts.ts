/** How a guard reads the request of a framework, and the parts of a key from it. */

import { describe, type Key, notAllowed } from "../arguments";
import type { ClientAddressRules } from "../client_address";
import { invalidArgument, type PolylimitError } from "../errors";
import { type HttpRequest, isByConfiguration } from "./by_configuration";
import { warn } from "./guard_steps";

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
  /**
   * The pattern that the router has matched, with all prefixes and parameters as `{name}`: the attribute `route`. `undefined`
   * where it is not known.
   */
  readonly patternOf?: (...context: Context) => string | undefined;
  /** Whether the guard belongs to a handler, which then answers the preflight requests that get there; `false` by default. */
  readonly isOnHandler?: (...context: Context) => boolean;
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
      return (context) => headerOf(name, ...context) || undefined;
    case "cookie":
      return (context) => cookie(headerOf("cookie", ...context), name) || undefined;
    case "user":
      if (userOf === undefined) throw absent();
      return (context) => userText(userOf(...context));
    default:
      if (pathOf === undefined) throw absent();
      return warningOnce(name, (context) => pathOf(name, ...context));
  }
}

/** Emits one warning of the process when a parameter of the path is missing: most probably no router can ever set it. */
function warningOnce<Context>(
  name: string,
  read: (context: Context) => string | undefined,
): (context: Context) => string | undefined {
  let hasWarned = false;
  return (context) => {
    const value = read(context);
    if (value === undefined && !hasWarned) {
      hasWarned = true;
      warn(
        `polylimit: the key part path:${name} is missing: the route of this request has no parameter ${name}, or the rate limit ` +
          "runs before the router. Give the limit to the route, or use another key",
      );
    }
    return value || undefined;
  };
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

/**
 * Refuses parts of a key that a mount with this path cannot have: it has no parameters at all.
 *
 * @throws PolylimitError `invalid_argument` with the part
 */
export function checkPathParts(key: unknown, path: unknown): void {
  if (typeof path !== "string" || /[:*(]/.test(path)) return;
  const part = [key].flat().find((one) => typeof one === "string" && one.startsWith("path:"));
  if (part === undefined) return;
  throw invalidArgument(
    `the key has the part ${part}, and no router sets it at ${path}: give the limit to the route, or mount it at a path with the ` +
      "parameter",
  );
}

/** The value of a cookie as the client sent it. */
function cookie(cookies: string | undefined, name: string): string | undefined {
  const pair = cookies?.split(/; */).find((one) => one.startsWith(`${name}=`));
  return pair?.slice(name.length + 1);
}

/** A user as text: the text, bytes or number itself, or the `id` or `sub` of an object. An empty text is no user. */
function userText(user: unknown): string | undefined {
  if (isScalar(user)) return scalarText(user);
  const { id, sub } = (user ?? {}) as { readonly id?: unknown; readonly sub?: unknown };
  const found = id ?? sub;
  if (found === undefined || found === null) return undefined;
  if (isScalar(found)) return scalarText(found);
  // The identifiers of some databases are objects with a text of their own.
  const { toString: convert } = found as { readonly toString?: unknown };
  const isOwn = typeof convert === "function" && convert !== Object.prototype.toString;
  if (typeof found === "object" && !Array.isArray(found) && isOwn) return scalarText(String(found));
  throw unusable(found);
}

type Scalar = string | number | bigint | Uint8Array;

function isScalar(value: unknown): value is Scalar {
  return ["string", "number", "bigint"].includes(typeof value) || value instanceof Uint8Array;
}

function scalarText(value: Scalar): string | undefined {
  if (typeof value === "number" && !Number.isSafeInteger(value)) throw unusable(value);
  if (!(value instanceof Uint8Array)) return String(value) || undefined;
  try {
    return UTF8.decode(value) || undefined;
  } catch {
    return Buffer.from(value).toString("hex");
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function unusable(value: unknown): PolylimitError {
  return invalidArgument(
    `the id of the user is ${describe(value)}: allowed are text, bytes, whole numbers, and objects with a toString of their own`,
  );
}
