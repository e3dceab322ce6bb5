/** The configuration of a limiter: its status and changes, and decisions on requests by their attributes. */

import { types } from "node:util";

import type { AttributesRow, NativeConfiguration } from "./addon";
import { checkedOptions, excerpt, hasProperties, type Key, keyOf, notAllowed, number, text } from "./arguments";
import { type Decision, readDecision, wholeMs } from "./decision";
import { callNative, invalidArgument } from "./errors";
import { exchange } from "./exchange";
import { nativeOf, operateAll } from "./native_limiters";
import { TIMEOUT } from "./options";
import { type ReservationId, type ReservationTerms, termsSettings } from "./reservation";
import type { Cause } from "./tables";

/** Which policy document is active in a limiter. */
export interface ConfigurationStatus {
  /** Where it comes from: `document` for the program's own, otherwise what the option `configuration` names. */
  readonly source: string;
  /** Grows with each change; 0 before the first configuration. */
  readonly version: number;
  /**
   * Which document of Redis is active, counted from 1: what `expectedVersion` of `publish` expects to replace. 0 where the document
   * does not come from Redis.
   */
  readonly documentVersion: number;
  /** SHA-256 of the canonical document, in hexadecimal digits; empty before the first configuration. */
  readonly digest: string;
  /** When this version was applied, by this host's clock; `undefined` before the first configuration. */
  readonly appliedAt: Date | undefined;
  /** For how many milliseconds the source has been unreachable; 0 when it is reachable. */
  readonly ageMs: number;
  /** Why a newer configuration was not applied, or may not be known; `null` if there is nothing to report. */
  readonly error: string | null;
}

/** The value of an entry: all of it is optional, except for the `numbers` of an override. */
export interface EntryValue {
  /** When the entry ends, as in RFC 3339: `2027-01-01T00:00:00Z`. */
  readonly until?: string;
  /** The author of the entry. */
  readonly by?: string;
  /** The reason. */
  readonly why?: string;
  /** Of an override: the name of a plan, or quotas. */
  readonly numbers?: string;
}

/** How a document is published. */
export interface PublishOptions {
  /** The version of the document that this one replaces; with another one there, nothing is published. By default any. */
  readonly expectedVersion?: number;
  /** The author's name, up to 256 bytes. */
  readonly by?: string;
  /** The reason, up to 1,024 bytes. */
  readonly why?: string;
}

/** The lines of a request's headers: pairs in the order in which they were received, or an object of texts and lists of texts. */
export type AttributeHeaders =
  | Iterable<readonly [name: string, value: string]>
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** What an application says about a request, so that a configuration finds the limits of it. What is not given is absent. */
export interface RequestAttributes {
  /** The method, such as `GET`; it is compared as it is written. */
  readonly method?: string | undefined;
  /** The path as the client sent it, with its escapes; a query after it is ignored. */
  readonly path?: string | undefined;
  /** The address at the other end of the socket. The client's is found from it by the configuration's `client`. */
  readonly peer?: string | undefined;
  readonly headers?: AttributeHeaders | undefined;
  /**
   * What the application knows of the request, such as `user` or `plan`, by names of lower-case letters, digits and `_`. Text, bytes
   * or whole numbers; `undefined` and `null` are absent.
   */
  readonly attributes?: Readonly<Record<string, Key | null | undefined>> | undefined;
}

/** A policy that the rules of a configuration apply to a request. */
export interface PolicyMatch {
  readonly policy: string;
  /** Text, or bytes that are no UTF-8. */
  readonly key: string | Uint8Array;
  /** Units. */
  readonly cost: number;
  /** Percent of the capacity that is kept for others: 0 to 99. */
  readonly headroom: number;
}

/** The decision of one policy on a request. */
export interface MatchedDecision extends PolicyMatch {
  /** A request that another policy denies may have decisions that admit it; they show what is left after the units were given back. */
  readonly decision: Decision;
  /** The id of the reservation that the caller ends with `commit` or `cancel`; `null` where units were spent. */
  readonly reservation: ReservationId | null;
}

/** The decision on a request by the lists, rules and policies of a configuration. */
export interface RequestDecision {
  readonly allowed: boolean;
  /** The cause of the first denial, or why the request was admitted without the store; `null` for every other decision. */
  readonly cause: Cause | null;
  /** The HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429; `null` when allowed. */
  readonly status: number | null;
  /**
   * Whole milliseconds, rounded up, until the request would be admitted: the longest over the denials; 0 when allowed, and `null` means
   * never.
   */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
  /** One for each policy that the rules apply; none where a list of attributes decides. */
  readonly decisions: readonly MatchedDecision[];
}

/** How a candidate and the effective quotas have decided the same checks, since either's quotas changed. */
export interface CandidateCounts {
  readonly bothAllow: number;
  readonly onlyLiveDenies: number;
  readonly onlyCandidateDenies: number;
  readonly bothDeny: number;
}

const DOCUMENT = "a document as TOML or JSON text, or as an object";
const ENTRY = '"deny ITEM", "allow ITEM" or "override POLICY KEY"';

/** A document as text. */
export function documentText(document: string | object): string {
  return jsonText("document", document, DOCUMENT);
}

function jsonText(name: string, value: unknown, allowed: string): string {
  if (typeof value === "string") return value;
  if (!hasProperties(value) || types.isProxy(value)) throw notAllowed(name, value, allowed);
  let written: unknown;
  try {
    written = JSON.stringify(value);
  } catch (thrown) {
    // A cycle, a BigInt, or a getter of the program.
    throw invalidArgument(
      `${name} has no JSON text: ${thrown instanceof Error ? thrown.message.split("\n")[0] : thrown}`,
    );
  }
  return text(name, written, allowed);
}

export function configuration(limiter: object): ConfigurationStatus | undefined {
  const native = nativeOf(limiter);
  const status = callNative(() => native.configuration());
  return status === null || status === undefined ? undefined : statusOf(status);
}

export function setDocument(limiter: object, document: string | object): ConfigurationStatus {
  const native = nativeOf(limiter);
  const given = documentText(document);
  return statusOf(callNative(() => native.setDocument(given)));
}

export function setEntry(limiter: object, entry: string, value: EntryValue | string): Promise<ConfigurationStatus> {
  return operateAll(
    limiter,
    (native) =>
      native.setEntry(text("entry", entry, ENTRY), jsonText("value", value, "an object, or the JSON text of one")),
    readStatus,
  );
}

export function deleteEntry(limiter: object, entry: string): Promise<ConfigurationStatus> {
  return operateAll(limiter, (native) => native.deleteEntry(text("entry", entry, ENTRY)), readStatus);
}

export function publish(
  limiter: object,
  document: string | object,
  options: PublishOptions,
): Promise<ConfigurationStatus> {
  return operateAll(
    limiter,
    (native) => {
      const { expectedVersion, by, why } = checkedOptions("options", options, ["expectedVersion", "by", "why"]);
      if (expectedVersion !== undefined) number("expectedVersion", expectedVersion, "a version");
      if (by !== undefined) text("by", by, "text");
      if (why !== undefined) text("why", why, "text");
      native.publish(documentText(document), { expectedVersion, by, why });
    },
    readStatus,
  );
}

export function waitForVersion(limiter: object, version: number, timeoutMs: number): Promise<ConfigurationStatus> {
  return operateAll(
    limiter,
    (native) => native.waitForVersion(number("version", version, "a version"), number("timeoutMs", timeoutMs, TIMEOUT)),
    readStatus,
  );
}

export function matching(limiter: object, request: RequestAttributes): PolicyMatch[] {
  const native = nativeOf(limiter);
  const row = attributesRow(request);
  return callNative(() => Array.from(native.matching(row), (match) => ({ ...match })));
}

export function decide(
  limiter: object,
  request: RequestAttributes,
  options: ReservationTerms,
): Promise<RequestDecision> {
  return operateAll(
    limiter,
    (native) => {
      const settings = termsSettings(options);
      native.decide(attributesRow(request), settings);
    },
    readRequestDecision,
  );
}

export function candidateCounts(limiter: object, policy: string): CandidateCounts | undefined {
  const native = nativeOf(limiter);
  text("policy", policy, "a policy's name");
  const counts = callNative(() => native.candidateCounts(policy));
  return counts === null || counts === undefined ? undefined : { ...counts };
}

function readStatus(): ConfigurationStatus {
  return statusOf(exchange.configuration());
}

function statusOf({ appliedAtMs, error, ...same }: NativeConfiguration): ConfigurationStatus {
  return { ...same, appliedAt: appliedAtMs === 0 ? undefined : new Date(appliedAtMs), error: error ?? null };
}

function readRequestDecision(): RequestDecision {
  const { allowed, cause, status, retryAfterUs = null, decisions } = exchange.requestDecision();
  return {
    allowed,
    cause: (cause ?? null) as Cause | null,
    status: status ?? null,
    retryAfterMs: wholeMs(retryAfterUs),
    retryAfterUs,
    decisions: decisions.map(({ policy, key, cost, headroom, reservation }, at) => {
      exchange.loadDecision(at);
      return { policy, key, cost, headroom, decision: readDecision(), reservation: reservation ?? null };
    }),
  };
}

const ATTRIBUTES = ["method", "path", "peer", "headers", "attributes"];

/** The attributes of a request as the addon takes them. */
export function attributesRow(request: RequestAttributes): AttributesRow {
  const { method, path, peer, headers, attributes } = checkedOptions("request", request, ATTRIBUTES);
  for (const [name, value] of Object.entries({ method, path, peer })) {
    if (value !== undefined) text(name, value, "text");
  }
  return { method, path, peer, headers: headerLines(headers ?? []), attributes: attributeRows(attributes ?? {}) };
}

function headerLines(headers: AttributeHeaders): string[] {
  if (typeof headers !== "object" || headers === null) throw notAllowed("headers", headers, HEADERS);
  const lines: string[] = [];
  const add = (name: unknown, value: unknown) => {
    if (typeof name !== "string" || typeof value !== "string") throw notAllowed("a header", value, HEADERS);
    lines.push(name, value);
  };
  if (Symbol.iterator in headers) {
    for (const [name, value] of headers) add(name, value);
  } else {
    for (const [name, values] of Object.entries(headers)) {
      for (const value of values === undefined ? [] : [values].flat()) add(name, value);
    }
  }
  return lines;
}

const HEADERS = "pairs of texts, or an object of texts and lists of texts";

export function attributeRows(
  attributes: Readonly<Record<string, Key | null | undefined>>,
): { name: string; value: unknown }[] {
  if (!hasProperties(attributes)) {
    throw notAllowed("attributes", attributes, "an object of text, bytes and whole numbers");
  }
  const rows: { name: string; value: unknown }[] = [];
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) rows.push({ name, value: keyOf(value, `attribute ${excerpt(name)}`) });
  }
  return rows;
}
