/** A decision as HTTP: response fields, and the answer to a denied request. */

import { Field, Question } from "./addon";
import { text } from "./argument";
import { type Decision, writeDecision } from "./decision";
import { exchange, fields, question } from "./exchange";
import { calling } from "./failure";
import { type Limiter, nativeLimiter } from "./limiter";
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

/** The answer to a denied request, in the form that its client reads. */
export interface Refusal {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** The fields of a response, by their names in lower case. */
export type HeaderFields = readonly (readonly [name: string, value: string])[];

/** In place of a bit for each value that changed: every name and value is told. */
const ALL = -1;

/** Writes what responses say of the decisions on their requests. */
export class Responder {
  readonly #respond: () => string | undefined;
  /** The fields of the newest response. Most of them are those of the next one too. */
  #newest: HeaderFields = [];

  /**
   * For what a limiter decides by a policy.
   *
   * @throws PolylimitError `invalid_argument` when a style or a form is not known
   */
  constructor(limiter: Limiter, policy: string, { headers, resetForm }: HeaderOptions) {
    if (headers !== undefined) text("headers", headers, "the name of a style");
    if (resetForm !== undefined) text("resetForm", resetForm, "the name of a form");
    const native = nativeLimiter(limiter);
    this.#respond = calling(() => exchange.responder(native, policy, headers, resetForm)) as () => string | undefined;
  }

  /** The fields of a response about the decision that was just read, if the policy's alone. */
  fieldsOfNewest(): HeaderFields {
    question[Question.OutcomesAdded] = 0;
    return this.#fields();
  }

  /** The fields of a response about these outcomes. */
  fieldsOf(outcomes: readonly Outcome[]): HeaderFields {
    exchange.clearOutcomes();
    for (const { limiter, policy, decision } of outcomes) {
      writeDecision(decision);
      exchange.addOutcome(nativeLimiter(limiter), policy);
    }
    question[Question.OutcomesAdded] = 1;
    return this.#fields();
  }

  #fields(): HeaderFields {
    fields[Field.NowMs] = Date.now();
    const told = this.#respond() ?? "";
    const changed = fields[Field.Changed];
    if (changed === ALL) {
      const lines = told === "" ? [] : told.split("\n");
      const names = lines.filter((_, at) => at % 2 === 0);
      this.#newest = names.map((name, at) => [name, lines[2 * at + 1]]);
    } else if (changed !== 0) {
      // Mostly it is one.
      const lines = (changed & (changed - 1)) === 0 ? [told] : told.split("\n");
      let line = 0;
      this.#newest = this.#newest.map((field, at) => ((changed >> at) & 1 ? [field[0], lines[line++]] : field));
    }
    return this.#newest;
  }
}

/** The answer to the request that the newest response is about, for a client with this `Accept` field. */
export function refusal(cost: number, accept: string | undefined): Refusal {
  const [contentType, body] = exchange.refusal(cost, accept);
  return { status: fields[Field.Status], contentType, body };
}

/** The same for whoever writes the answer by hand. */
export function problem(cost: number): Problem {
  const found = exchange.problem(cost);
  return { ...found, violated: Array.from(found.violated) };
}
