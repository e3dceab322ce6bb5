/** What the limits of GraphQL and tRPC share: their operations are parts of requests, and not requests themselves. */

import { invalidArgument } from "../errors";
import type { HeaderFields } from "../headers";
import { isByConfiguration } from "./by_configuration";
import { Guard, type GuardResult } from "./guard";
import { checkOptions, type RateLimitOptions } from "./options";

/** What is known of an operation. */
export interface OperationReader<Operation> {
  /** The name of the operation, to which quotas without a name belong; rules see it as `route` and, after a slash, as `path`. */
  readonly nameOf: (operation: Operation) => string | undefined;
  readonly userOf: (operation: Operation) => unknown;
}

export type OperationOptions<Operation, Finished extends unknown[]> = RateLimitOptions<
  [operation: Operation],
  Finished,
  never
>;

/** A guard of operations. They have no address: the options say what the key is, or the limiter's document does. */
export function guardOf<Operation, Finished extends unknown[]>(
  options: OperationOptions<Operation, Finished>,
  { nameOf, userOf }: OperationReader<Operation>,
  more: readonly string[] = [],
): Guard<[operation: Operation], Finished, never> {
  checkOptions(options, more);
  const { key, onDenied } = options;
  if (onDenied !== undefined)
    throw invalidArgument("onDenied is given: a denial is an error of the operation, leave it out");
  if (key === undefined && !isByConfiguration(options)) {
    throw invalidArgument("key is missing: an operation does not have the address of its client");
  }
  return new Guard<[operation: Operation], Finished, never>(options, {
    clientOf: () => "",
    methodOf: () => "POST",
    requestOf: (operation) => ({ method: "POST", path: `/${nameOf(operation) ?? ""}`, peer: undefined, headers: [] }),
    headerOf: () => undefined,
    routeOf: nameOf,
    patternOf: nameOf,
    isOnHandler: () => true,
    userOf,
  });
}

/** Why an operation does not proceed. */
export interface OperationDenial {
  /** The status that a response of HTTP would have: 429, 503, 400 or 403. */
  readonly status: number;
  readonly message: string;
  /** The wait until the operation may be admitted, in milliseconds; `null` where none helps, or none is known. */
  readonly retryAfterMs: number | null;
  readonly fields: HeaderFields;
}

/** The denial of a result; `undefined` when the operation proceeds. */
export function denialOf({ denial, fields, rateLimit }: GuardResult<never>): OperationDenial | undefined {
  if (denial === undefined) return undefined;
  // Without a field `accept` it is a problem document.
  const { detail } = JSON.parse(denial.body) as { readonly detail: string };
  return { status: denial.status, message: detail, retryAfterMs: rateLimit?.retryAfterMs ?? null, fields };
}
