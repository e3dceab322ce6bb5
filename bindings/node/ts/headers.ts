/** The HTTP side of decisions: the header fields of a response, and the response to a denied request. */

import { Field, RequestField } from "./addon";
import { text } from "./arguments";
import { type Decision, writeDecision } from "./decision";
import { callNative } from "./errors";
import { exchange, fields, request } from "./exchange";
import { type Limiter, nativeLimiter } from "./limiter";
import type { HeaderStyle, ResetForm } from "./tables";

/** A decision about a request, with its limiter and policy. */
export interface Outcome {
  readonly limiter: Limiter;
  readonly policy: string;
  readonly decision: Decision;
}

/** Which header fields a response gets. */
export interface HeaderOptions {
  /** `ietf` (`ratelimit-policy` and `ratelimit`), `legacy` (`x-ratelimit-*`), `both` or `none`; by default `ietf`. */
  readonly headers?: HeaderStyle;
  /** Whether `x-ratelimit-reset` is in `seconds` from now (the default) or since the `epoch`. */
  readonly resetForm?: ResetForm;
}

/** The problem document of a denied request (RFC 9457), and the same as text. */
export interface Problem {
  /** 429; 503 when the store is unavailable and the policy denies during an outage. */
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

/** The response to a denied request, in the form that its client accepts. */
export interface DenialResponse {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** Header fields; the names are in lower case. */
export type HeaderFields = readonly (readonly [name: string, value: string])[];

/** The value of `Field.Changed` when the addon returns all names and values. */
const ALL = -1;

/** Makes the header fields of responses about one limiter and policy. */
export class HeaderWriter {
  readonly #changes: () => string | undefined;
  /** The fields of the previous response; most of them stay the same in the next one. */
  #previous: HeaderFields = [];

  /** @throws PolylimitError `invalid_argument` for an unknown style or form */
  constructor(limiter: Limiter, policy: string, { headers, resetForm }: HeaderOptions) {
    if (headers !== undefined) text("headers", headers, "the name of a style");
    if (resetForm !== undefined) text("resetForm", resetForm, "the name of a form");
    const native = nativeLimiter(limiter);
    this.#changes = callNative(() => exchange.headerFunction(native, policy, headers, resetForm)) as () =>
      | string
      | undefined;
  }

  /** The fields of a response about the decision in the shared arrays alone. */
  fieldsOfNewestDecision(): HeaderFields {
    request[RequestField.OutcomesAdded] = 0;
    return this.#fields();
  }

  /** The fields of a response about these outcomes. */
  fieldsOf(outcomes: readonly Outcome[]): HeaderFields {
    exchange.clearOutcomes();
    for (const { limiter, policy, decision } of outcomes) {
      writeDecision(decision);
      exchange.addOutcome(nativeLimiter(limiter), policy);
    }
    request[RequestField.OutcomesAdded] = 1;
    return this.#fields();
  }

  #fields(): HeaderFields {
    fields[Field.NowMs] = Date.now();
    const text = this.#changes() ?? "";
    const changed = fields[Field.Changed];
    if (changed === ALL) {
      const lines = text === "" ? [] : text.split("\n");
      const names = lines.filter((_, at) => at % 2 === 0);
      this.#previous = names.map((name, at) => [name, lines[2 * at + 1]]);
    } else if (changed !== 0) {
      // In most responses only one value changes.
      const lines = (changed & (changed - 1)) === 0 ? [text] : text.split("\n");
      let line = 0;
      this.#previous = this.#previous.map((field, at) => ((changed >> at) & 1 ? [field[0], lines[line++]] : field));
    }
    return this.#previous;
  }
}

/** The response to the denied request of the newest fields, for a client with this `Accept` field. */
export function denialResponse(cost: number, accept: string | undefined): DenialResponse {
  const [contentType, body] = exchange.denialResponse(cost, accept);
  return { status: fields[Field.Status], contentType, body };
}

/** The problem document of that request, for a handler that writes its own response. */
export function problem(cost: number): Problem {
  const found = exchange.problem(cost);
  return { ...found, violated: Array.from(found.violated) };
}
