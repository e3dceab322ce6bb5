/** A decision as HTTP: response fields, and the body of a denial. */

import { known, text } from "./argument";
import { type Decision, writeDecision } from "./decision";
import { exchange } from "./exchange";
import { calling } from "./failure";
import { type Limiter, nativeLimiter } from "./limiter";
import { native } from "./native";
import type { HeaderStyle, ResetForm } from "./tables";

/** A decision about a request, with the limiter and the policy that made it. */
export interface Outcome {
  readonly limiter: Limiter;
  readonly policy: string;
  readonly decision: Decision;
}

/** Which fields a response gets. */
export interface HeaderOptions {
  /** `ietf` (`ratelimit-policy` and `ratelimit`), `legacy` (`x-ratelimit-*`), `both` or `none`; `ietf` unless told otherwise. */
  readonly headers?: HeaderStyle;
  /** Whether `x-ratelimit-reset` is in `seconds` from now, the default, or since the `epoch`. */
  readonly resetForm?: ResetForm;
}

/** What to answer to a denied request. */
export interface Problem {
  /** 429, or 503 when the store could not be asked and the policy denies then. */
  readonly status: number;
  /** The URI of the problem type. */
  readonly type: string;
  readonly title: string;
  /** What a person can do about it: one sentence. */
  readonly detail: string;
  /** The quotas that were exceeded, by their names in `ratelimit-policy`. */
  readonly violated: readonly string[];
  /** A problem document (RFC 9457), and its content type. */
  readonly json: string;
  readonly jsonType: string;
  /** The same for clients that read text. */
  readonly text: string;
  readonly textType: string;
}

/** The fields of a response, by their names in lower case. */
export type HeaderFields = readonly (readonly [name: string, value: string])[];

/** What a response says of the decisions on its request. */
export interface Response {
  readonly fields: HeaderFields;
  /** `undefined` when all admit it. */
  readonly problem: Problem | undefined;
}

/**
 * Makes the function that writes responses.
 *
 * @throws PolylimitError `invalid_argument` when a style or a form is not known
 */
export function responder(options: HeaderOptions = {}): (outcomes: readonly Outcome[], cost: number) => Response {
  known("options", options, ["headers", "resetForm"]);
  const { headers, resetForm } = options;
  if (headers !== undefined) text("headers", headers, "the name of a style");
  if (resetForm !== undefined) text("resetForm", resetForm, "the name of a form");
  const settings = calling(() => new native.NativeHeaderSettings(headers, resetForm));
  return (outcomes, cost) =>
    calling(() => {
      try {
        for (const { limiter, policy, decision } of outcomes) {
          writeDecision(decision);
          exchange.addOutcome(nativeLimiter(limiter), policy);
        }
        const flat = exchange.headerFields(settings, Date.now());
        const fields: [string, string][] = [];
        for (let at = 0; at < flat.length; at += 2) fields.push([flat[at], flat[at + 1]]);
        const denied = outcomes.some(({ decision }) => !decision.allowed);
        return { fields, problem: denied ? (exchange.problem(cost) ?? undefined) : undefined };
      } finally {
        exchange.clearOutcomes();
      }
    });
}
