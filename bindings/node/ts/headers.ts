/** The response to a request that is limited: its header fields, and the body of one that does not proceed. */

import { Field, type NativeOutcomes } from "./addon";
import { checkedOptions, notAllowed, number, text } from "./arguments";
import { type Decision, writeDecision } from "./decision";
import { callNative } from "./errors";
import { exchange, fields as sharedFields } from "./exchange";
import type { Limiter } from "./limiter";
import { native } from "./native";
import { nativeLimiter } from "./native_limiters";

const fields = sharedFields;

/** Which header fields a response gets. */
export interface HeaderOptions {
  /**
   * Words in any order, separated by spaces; by default `"ietf seconds"`:
   *
   * - `ietf` (`ratelimit-policy` and `ratelimit`), `legacy` (`x-ratelimit-*`), `both` or `none`;
   * - whether `x-ratelimit-reset` is in `seconds` from now or since the `epoch`;
   * - another name for a field, such as `ratelimit=x-quota`, of up to 64 characters. An empty name turns the field off.
   *   `retry-after` keeps its name.
   */
  readonly headers?: string;
}

/** The problem document of a request that does not proceed (RFC 9457), and the same as text. */
export interface Problem {
  /** 429 or the rate limit's own; 503 because of the store; 400 for a request without a key. */
  readonly status: number;
  /** The URI of the problem type. */
  readonly type: string;
  readonly title: string;
  /** One sentence for a person. */
  readonly detail: string;
  /** The names of the exceeded quotas, as in `ratelimit-policy`. */
  readonly violated: readonly string[];
  /** The document, and its content type. */
  readonly json: string;
  readonly jsonType: string;
  /** The text, and its content type. */
  readonly text: string;
  readonly textType: string;
}

/** The response to a request that does not proceed, in the form that its client accepts. */
export interface DenialResponse {
  /** 429 or the rate limit's own; 503 because of the store; 400 for a request without a key. */
  readonly status: number;
  /** The field `content-type`. */
  readonly contentType: string;
  /** The field `vary`. */
  readonly vary: string;
  readonly body: string;
}

/** A decision about a request, and its policy: a name, or quotas; it may be absent when the limiter has one policy. */
export interface PolicyDecision {
  readonly policy?: string | undefined;
  readonly decision: Decision;
}

/** Header fields; the names are in lower case. */
export type HeaderFields = readonly (readonly [name: string, value: string])[];

/** The value of `Field.Changed` when the addon returns all names and values. */
const ALL = -1;

/** The fields of a response: those of the previous one with what has changed, of which the addon has returned the text. */
export function changedFields(previous: HeaderFields, text: string): HeaderFields {
  const changed = fields[Field.Changed];
  if (changed === ALL) return allFields(text);
  if (changed === 0) return previous;
  // In most responses only one value changes.
  const lines = (changed & (changed - 1)) === 0 ? [text] : text.split("\n");
  let line = 0;
  return previous.map((field, at) => ((changed >> at) & 1 ? [field[0], lines[line++]] : field));
}

/** What the option `headers` may be. */
export const HEADER_SETTINGS = 'a text, such as "legacy epoch"';

/** Names and values, each on a line. */
export function allFields(text: string): HeaderFields {
  const lines = text === "" ? [] : text.split("\n");
  const names = lines.filter((_, at) => at % 2 === 0);
  return names.map((name, at) => [name, lines[2 * at + 1]]);
}

/** The response to the request that was just denied, for a client with this `Accept` field. */
export function denialResponse(accept: string | undefined): DenialResponse {
  const [contentType, vary, body] = exchange.denialResponse(accept);
  return { status: fields[Field.Status], contentType, vary, body };
}

/** The problem document of that request, for a handler that writes its own response. */
export function problem(): Problem {
  const found = exchange.problem();
  return { ...found, violated: Array.from(found.violated) };
}

/**
 * The header fields of the response to a request that a program has decided itself, in a fixed order. Middlewares set them
 * themselves.
 *
 * @param outcomes the decisions about the request, of one policy or of several different ones
 * @throws PolylimitError `invalid_argument` for an option that is not allowed, a policy that the limiter does not know, and
 * a decision that no limiter has made; `closed` when the limiter is closed
 */
export function headerFields(
  limiter: Limiter,
  outcomes: PolicyDecision | readonly PolicyDecision[],
  options: HeaderOptions = {},
): HeaderFields {
  const { headers = "" } = checkedOptions("options", options, ["headers"]);
  text("headers", headers, HEADER_SETTINGS);
  const all = nativeOutcomes(limiter, outcomes);
  return allFields(callNative(() => all.fields(headers)));
}

/**
 * The response to a request that a program has decided itself; `undefined` when no decision is a denial. Its header fields
 * besides `content-type` and `vary` are those of `headerFields`.
 *
 * @param options `cost`, the units of the request, 1 by default; and `accept`, the field that its client has sent, by which the
 * body is a problem document (RFC 9457) or text
 * @throws PolylimitError as `headerFields`
 */
export function denialOf(
  limiter: Limiter,
  outcomes: PolicyDecision | readonly PolicyDecision[],
  options: { readonly cost?: number; readonly accept?: string | undefined } = {},
): DenialResponse | undefined {
  const { cost = 1, accept } = checkedOptions("options", options, ["cost", "accept"]);
  number("cost", cost, "a number of units");
  if (accept !== undefined) text("accept", accept, "the field of a request");
  const all = nativeOutcomes(limiter, outcomes);
  const response = callNative(() => all.response(cost, accept));
  if (response === undefined || response === null) return undefined;
  const [contentType, vary] = response.values;
  return { status: response.status, contentType, vary, body: response.body };
}

function nativeOutcomes(limiter: Limiter, given: PolicyDecision | readonly PolicyDecision[]): NativeOutcomes {
  const all = new native.NativeOutcomes(nativeLimiter(limiter));
  for (const outcome of [given].flat() as PolicyDecision[]) {
    const { policy, decision } = checkedOptions("outcome", outcome, ["policy", "decision"]);
    if (policy !== undefined) text("policy", policy, "a policy's name, or quotas");
    if (typeof decision !== "object" || !Array.isArray(decision?.quotas)) {
      throw notAllowed("decision", decision, "a decision of a limiter");
    }
    writeDecision(decision);
    callNative(() => all.add(policy));
  }
  return all;
}
