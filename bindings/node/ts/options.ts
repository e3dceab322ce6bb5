/** The options of limiters and of requests: their types, their checks, and the form in which the addon reads them. */

import { checkedOptions, type Key, keyOf, notAllowed, number, text } from "./arguments";
import type { GiveCredentials } from "./credentials";
import { invalidArgument, PolylimitError } from "./errors";
import type { DegradedEvent } from "./events";
import type { ManualClock } from "./manual_clock";
import { camelCase } from "./names";
import { native } from "./native";
import { type Policies, Quota } from "./policy";
import type { StoreOptions } from "./tables";

/** The options of a limiter: those of its store, and these. */
export interface LimiterOptions extends StoreOptions {
  /** The policies by name. A request can also name quotas, which become a policy then. */
  readonly policies?: Policies;
  /**
   * A document that the program itself keeps: TOML or JSON text, or an object. `admin().setDocument` replaces it. For a document in a
   * file or in Redis see `configuration`.
   */
  readonly document?: string | object;
  /** The clock of the decisions. By default it is the server's for Redis, and the system's otherwise. */
  readonly clock?: ManualClock;
  /**
   * Called when the limiter begins to decide without its store, when it decides with it again, and for each finding of its
   * doctor. The process also emits each event as a warning (`process.emitWarning`), and an error that this function throws.
   */
  readonly onDegraded?: (event: DegradedEvent) => void;
  /**
   * Gives the password, or user and password, for each new connection to Redis, at once or by a promise, in place of those in the URL:
   * for tokens that expire. It is called again when the server refuses what it gave, then not for 0.25 to 10 seconds, growing with
   * each time in a row. Decisions keep their deadline meanwhile; it has 60 seconds for an answer. An error is the cause in `ready`,
   * the events and the doctor. `admin().setCredentials` replaces it.
   */
  readonly credentials?: GiveCredentials;
}

/** The options of a request. */
export interface RequestOptions {
  /** A policy's name, or quotas such as `"100/minute"` or a `Quota`. It is optional when the limiter has one policy. */
  readonly policy?: string | Quota;
  /** The units that the request spends: a whole number from 0 to 10^12; 1 by default. */
  readonly cost?: number;
  /**
   * The part of each quota's capacity that a check, a peek, a reserve or an acquire leaves for others, in percent: 0 to 99, rounded up
   * to whole units. So less important requests are denied first. 0 by default.
   */
  readonly headroom?: number;
  /** The plan of the key, whose quotas decide where the policy has it; a calendar may follow, as in `gold from=15`. */
  readonly plan?: string;
}

export interface AcquireOptions extends RequestOptions {
  /** The longest wait, in milliseconds. */
  readonly timeoutMs: number;
  /**
   * Ends the wait when it is aborted: the promise rejects at once with the signal's `reason`, and nothing is spent. A signal that is
   * aborted before has the same effect, and the store is not asked.
   */
  readonly signal?: AbortSignal;
}

/** One of several checks. */
export interface Check extends RequestOptions {
  readonly key: Key;
}

export const COST = "a whole number from 0 to 1000000000000 units";
export const TIMEOUT = "a number of milliseconds";
export const POLICY = 'a policy\'s name, or quotas such as "100/minute" or a Quota';
export const HEADROOM = "a whole number from 0 to 99 percent";
export const REQUEST = ["policy", "cost", "headroom", "plan"];
export const ACQUIRE = [...REQUEST, "timeoutMs", "signal"];
const CHECK = ["key", ...REQUEST];

const rows = new Map(native.limiterOptions().map((row) => [camelCase(row.name), row]));

const LIMITER = ["policies", "document", "clock", "onDegraded", "credentials", ...rows.keys()];

/** The options that an object has or inherits, as text under their names in the core. */
export function optionTexts(options: object): { name: string; text: string }[] {
  checkedOptions("options", options, LIMITER, "limiter");
  const texts: { name: string; text: string }[] = [];
  for (const [name, row] of rows) {
    const value = (options as Record<string, unknown>)[name];
    if (value === undefined) continue;
    const allowed = row.kind === "duration" ? `${row.allowed}, as text or in milliseconds` : row.allowed;
    texts.push({ name: row.name, text: optionText(name, value, row.kind, allowed) });
  }
  return texts;
}

function optionText(name: string, value: unknown, kind: string, allowed: string): string {
  if (typeof value === "string") return value;
  if (typeof value !== "number" || kind === "text") throw notAllowed(name, value, allowed);
  if (kind !== "duration") return decimal(name, value, allowed);
  // The core reads a duration as a whole number of a unit.
  return Number.isInteger(value) ? `${decimal(name, value, allowed)}ms` : `${decimal(name, value * 1000, allowed)}us`;
}

/** A number in decimal notation. Fails for one that JavaScript writes with an exponent. */
function decimal(name: string, value: number, allowed: string): string {
  const text = String(value);
  if (!/^\d+(\.\d+)?$/.test(text)) throw notAllowed(name, value, allowed);
  return text;
}

export function policyOf({ policy }: { readonly policy?: unknown }): string | undefined {
  return policy === undefined ? undefined : policyText(policy);
}

/** A policy as text: its name, or its quotas. */
export function policyText(policy: unknown, allowed = POLICY): string {
  return policy instanceof Quota ? policy.text : text("policy", policy, allowed);
}

export function costOf({ cost }: RequestOptions): number | undefined {
  return cost === undefined ? undefined : number("cost", cost, COST);
}

export function headroomOf({ headroom }: RequestOptions): number | undefined {
  return headroom === undefined ? undefined : number("headroom", headroom, HEADROOM);
}

export function planOf({ plan }: RequestOptions): string | undefined {
  return plan === undefined ? undefined : text("plan", plan, "the name of a plan");
}

type CheckRow = { key: unknown; policy?: string; cost?: number; headroom?: number; plan?: string };

/** A row for each check. With `onInvalid`, an invalid check is reported to it and becomes a row without a key. */
export function checkRows(
  checks: readonly (Check | string | number | bigint)[],
  onInvalid?: (error: PolylimitError, at: number) => void,
): CheckRow[] {
  if (!Array.isArray(checks)) throw notAllowed("checks", checks, "an array");
  return Array.from(checks as readonly (Check | string | number | bigint)[], (check, at) => {
    const isKey = typeof check === "string" || typeof check === "number" || typeof check === "bigint";
    const asked = isKey ? { key: check } : checkedOptions(`checks[${at}]`, check as Check, CHECK, "request");
    try {
      return checkRow(asked, at);
    } catch (thrown) {
      if (onInvalid === undefined || !(thrown instanceof PolylimitError)) throw thrown;
      onInvalid(thrown, at);
      return { key: null };
    }
  });
}

function checkRow(check: Check, at: number): CheckRow {
  const { key } = check;
  if (key === undefined) throw invalidArgument(`checks[${at}] has no key`);
  return rowOf(key, check);
}

/** The row of a request with these options, or of this policy. */
export function requestRow(key: Key, options: RequestOptions | string | Quota): CheckRow {
  return rowOf(key, isPolicy(options) ? { policy: options } : checkedOptions("options", options, REQUEST, "request"));
}

/** Whether the options of a request are only its policy. */
export function isPolicy(options: unknown): options is string | Quota {
  return typeof options === "string" || options instanceof Quota;
}

function rowOf(key: Key, options: RequestOptions): CheckRow {
  const [policy, cost, headroom, plan] = [policyOf(options), costOf(options), headroomOf(options), planOf(options)];
  return { key: keyOf(key), policy, cost, headroom, plan };
}
