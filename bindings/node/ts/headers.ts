/** The response to a request that is limited: its header fields, and the body of one that does not proceed. */

import { Field } from "./addon";
import { exchange, fields as sharedFields } from "./exchange";
import type { HeaderStyle, ResetForm } from "./tables";

const fields = sharedFields;

/** Which header fields a response gets. */
export interface HeaderOptions {
  /** `ietf` (`ratelimit-policy` and `ratelimit`), `legacy` (`x-ratelimit-*`), `both` or `none`; by default `ietf`. */
  readonly headers?: HeaderStyle;
  /** Whether `x-ratelimit-reset` is in `seconds` from now (the default) or since the `epoch`. */
  readonly resetForm?: ResetForm;
  /**
   * Other names of fields, such as `{ ratelimit: "x-quota" }`: names of up to 64 characters. An empty name turns the field
   * off. `retry-after` keeps its name.
   */
  readonly headerNames?: Readonly<Record<string, string>>;
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
  readonly status: number;
  readonly contentType: string;
  readonly vary: string;
  readonly body: string;
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
