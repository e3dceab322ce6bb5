/**
 * Lists of keys, explanations, and the keys that are denied most often. Times are milliseconds, exact to the microsecond; a
 * `retryAfterMs` is rounded up to whole ones.
 */

import { checkedOptions, type Key, number, text } from "./arguments";
import { attributesRow, type RequestAttributes } from "./configuration";
import { wholeMs } from "./decision";
import { callNative } from "./errors";
import { exchange } from "./exchange";
import { camelCase } from "./names";
import { nativeOf, operateAll } from "./native_limiters";
import { policyOf, type RequestOptions, requestRow } from "./options";
import type { Quota } from "./policy";
import type { Cause, Degradation, PolicyMode, QuotasSource } from "./tables";

/** Which keys a list has; all by default. */
export interface KeyFilter {
  /** The name of a policy, or its quotas such as `"100/minute"` or a `Quota`. */
  readonly policy?: string | Quota | undefined;
  /** What the key begins with: text or bytes. A long key, of which the store has only a digest, is in no list with a prefix. */
  readonly keyPrefix?: string | Uint8Array | undefined;
  /** The least `usedPercent`, 0 to 255. Keys of unknown policies have none, and are listed with 0 only, which is the default. */
  readonly atLeastUsed?: number | undefined;
}

/** How many keys the store goes over, and how fast. */
export interface ScanBudget {
  /** The page ends once the store has examined this many keys, 1 or more, whether they are in the page or not; 100,000 by default. */
  readonly examined?: number | undefined;
  /**
   * The share of one server's time that a list in Redis may take, in percent: 1 to 100. With 10, the default, each call is followed by a
   * pause of nine times its duration.
   */
  readonly pacePercent?: number | undefined;
}

/** Which keys a page has, and when it ends. */
export interface ListOptions extends KeyFilter, ScanBudget {
  /** The page ends once it has this many keys, 1 or more; it may have about a thousand more. 1,000 by default. */
  readonly entries?: number | undefined;
  /** The `cursor` of the page before, with the same filter; a list begins without one. */
  readonly cursor?: string | null | undefined;
}

/** Which keys the most used ones are chosen from. */
export interface ScanTopOptions extends KeyFilter, ScanBudget {}

/** A key as its store has it: one of the three fields is there. */
export interface NamedKey {
  /** The key, where it is text in UTF-8. */
  readonly key?: string;
  /** Any other key, in the base64 of RFC 4648. */
  readonly keyBase64?: string;
  /** The digest of a long key, in hexadecimal digits, where the store has no more. */
  readonly keyDigest?: string;
}

/** A part of a list of keys. */
export interface KeyPage {
  /** The keys, in no particular order; in that of use for `scanTop`. */
  readonly keys: readonly ListedKey[];
  /** How many keys the store went over, about; in Redis those of other programs, too. */
  readonly examined: number;
  /** Where the list goes on; `null` when this was the last page. A page without keys may have one. */
  readonly cursor: string | null;
}

/** A key with what is used of its quotas. */
export interface ListedKey extends NamedKey {
  /** The name of its policy. */
  readonly policy: string;
  /** Each of the effective quotas of the key, in their order; none for a policy that this limiter does not know. */
  readonly quotas: readonly ListedQuota[];
  /**
   * Which part of the most that can be used at once is used or set aside, in percent, the most over the quotas: above 100 for units
   * beyond it, and at least 100 for a blocked key.
   */
  readonly usedPercent: number;
  /** How many reservations there are. */
  readonly reservations: number;
  /** The units that they set aside. */
  readonly reservedUnits: number;
  /** How much longer the key is blocked; 0 when it is not. */
  readonly blockedForMs: number;
  /** How long until the key is as if it had never been used; `null` when it stays, and where the store does not report it. */
  readonly expiresAfterMs: number | null;
}

/** What is used of one quota of a key. */
export interface ListedQuota {
  /** The quota as text, such as `100/minute`. */
  readonly quota: string;
  /** Units per period; reservations at a time for `concurrency`. */
  readonly limit: number;
  /** The most that can be used at once, without an excess. */
  readonly capacity: number;
  /** Units that count now, also those beyond the capacity; for `concurrency`, reservations. */
  readonly used: number;
  /** Whole units that the quota would still admit now. */
  readonly remaining: number;
  /** How long until nothing counts as used under this quota. */
  readonly resetAfterMs: number;
}

/** What became of a page of keys that were to be reset. */
export interface ResetPage {
  /** How many keys were reset. */
  readonly reset: number;
  /** How many keys stay, because their policies are not known to this limiter. */
  readonly unknown: number;
  /** How many keys the store went over, about. */
  readonly examined: number;
  /** Where the list goes on; `null` when this was the last page. */
  readonly cursor: string | null;
}

/** Why a request with a key would be admitted or denied now. */
export interface KeyExplanation extends NamedKey {
  /** The policy's name. */
  readonly policy: string;
  /** The units that the request would spend. */
  readonly cost: number;
  /** Percent of the capacity that the request leaves for others. */
  readonly headroom: number;
  /** Whether a check, or a reserve where the policy counts concurrency, would be admitted now. */
  readonly allowed: boolean;
  /** Why it would be denied, or admitted without the store. */
  readonly cause: Cause | null;
  /** How long until it would be admitted; 0 when allowed, and `null` means never. */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
  /** Whether the pool of an elastic policy would admit it. */
  readonly elastic: boolean;
  /** Whether it would be denied if the policy were not in shadow. */
  readonly shadowed: boolean;
  /** Whether the policy decides. */
  readonly mode: PolicyMode;
  /** The number of the rule that applies the policy, among those of the document, from 1 up; `null` for a request by its key. */
  readonly rule: number | null;
  /** What has decided which quotas the key has. */
  readonly quotasSource: QuotasSource;
  /** The plan whose quotas these are. */
  readonly plan: string | null;
  /** The override that gives the key these quotas. */
  readonly overrideEntry: EntryExplanation | null;
  /** The item of a list that names the key. */
  readonly listEntry: EntryExplanation | null;
  /** What each quota says, in their order. */
  readonly quotas: readonly QuotaExplanation[];
  /** How many reservations there are. */
  readonly reservations: number;
  /** The units that they set aside. */
  readonly reservedUnits: number;
  /** How long until the last of them ends. */
  readonly reservationsEndAfterMs: number;
  /** How much longer the key is blocked; 0 when it is not. */
  readonly blockedForMs: number;
  /** What is counted against the key under the policy's penalty; `null` for a policy that has none. */
  readonly penalty: PenaltyExplanation | null;
  /** How long until the key is as if it had never been used; `null` when it stays. */
  readonly expiresAfterMs: number | null;
  /** Why the states may not be the key's own. */
  readonly degraded: Degradation | null;
  /** Units that this process holds in a lease; the store counts them as used. */
  readonly leasedUnits: number;
  /** Whether this process would deny the request without asking the store. */
  readonly denialCached: boolean;
  /** How often this process has denied the key lately, as `topKeys` counts; `null` for a key without a counter. */
  readonly denials: number | null;
  /** By how much `denials` is too high at most. */
  readonly denialsError: number | null;
  /** What the pool of an elastic policy says about a request that the policy denies. */
  readonly pool: KeyExplanation | null;
  /** The active configuration; `null` for a limiter without one. */
  readonly configuration: ConfigurationExplanation | null;
}

/** What one quota says about a request. */
export interface QuotaExplanation {
  /** The quota as text, such as `100/minute token_bucket`. */
  readonly quota: string;
  /** Units per period; reservations at a time for `concurrency`. */
  readonly limit: number;
  /** The most that can be used at once, without an excess. */
  readonly capacity: number;
  /** The period; 0 for `concurrency`. */
  readonly periodMs: number;
  /** Units that count now, also those beyond the capacity; for `concurrency`, reservations. */
  readonly used: number;
  /** Whole units that the quota would still admit now. */
  readonly remaining: number;
  /** Units of an excess that are in use. */
  readonly over: number;
  /** Whether this quota alone admits the request. */
  readonly admits: boolean;
  /** How long until this quota alone admits it; `null` means never. */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
  /** How long until nothing counts as used under this quota. */
  readonly resetAfterMs: number;
  /** The same in the words of the algorithm, such as `debt 12.4 of 100, repays 1.67/s`. */
  readonly words: string;
}

/** What is counted against a key that is denied too often. */
export interface PenaltyExplanation {
  /** How many denials count now. */
  readonly denials: number;
  /** This many of them block the key. */
  readonly blocksAt: number;
  /** The blocks in a row until now: each is twice as long as the one before it. */
  readonly level: number;
  /** How long the next block would last. */
  readonly nextBlockMs: number;
}

/** An item of a list or an override: an entry, or a line of the document. */
export interface EntryExplanation {
  /** As `setEntry` takes it, such as `deny client 192.0.2.0/24`. */
  readonly entry: string;
  /** Whether it is a line of the document. */
  readonly inDocument: boolean;
  /** From this time on it has no effect; `null` means never. */
  readonly until: Date | null;
  /** The author, where that is known. */
  readonly by: string | null;
  /** The reason, where that is known. */
  readonly why: string | null;
}

/** Which configuration an explanation is by. */
export interface ConfigurationExplanation {
  /** Where it comes from. */
  readonly source: string;
  readonly version: number;
  /** SHA-256 of the canonical document, in hexadecimal digits. */
  readonly digest: string;
}

/** Why a request would be admitted or denied now, by the configuration's lists, rules and policies. */
export interface RequestExplanation {
  readonly allowed: boolean;
  /** Why it would be denied: the first cause of several; or admitted without the store. */
  readonly cause: Cause | null;
  /** How long until it would be admitted: the longest over the policies that deny; 0 when allowed, and `null` means never. */
  readonly retryAfterMs: number | null;
  /** The same in exact microseconds. */
  readonly retryAfterUs: number | null;
  /** The item of a list of attributes that decides; then no policy is asked. */
  readonly listEntry: EntryExplanation | null;
  /** The policies that the rules apply, in their order. */
  readonly policies: readonly KeyExplanation[];
  /** The active configuration. */
  readonly configuration: ConfigurationExplanation | null;
}

/** The keys that a limiter has denied and admitted most often in this process. */
export interface TopKeys {
  /** The keys that were denied, the most often denied first. */
  readonly denied: readonly TopKey[];
  /** The keys that were admitted, the most often admitted first. */
  readonly admitted: readonly TopKey[];
  /** The time in which every count is halved. */
  readonly halfLifeMs: number;
  /** How many keys have a counter at most; 0 when keys are not counted. */
  readonly counters: number;
}

/** How often a key was denied or admitted. */
export interface TopKey extends NamedKey {
  /** The policy's name. */
  readonly policy: string;
  /** How often, in requests: estimated from a sample of them. */
  readonly count: number;
  /** By how much the count is too high at most, because another key has had its counter before. */
  readonly error: number;
}

const FILTER = ["policy", "keyPrefix", "atLeastUsed", "examined", "pacePercent"];
const LIST = [...FILTER, "entries", "cursor"];
const MOST = "a whole number of keys";

/** The options as the addon takes them. */
function settingsOf(options: ListOptions, names: readonly string[]) {
  const given = checkedOptions("options", options, names, "list");
  const { keyPrefix, atLeastUsed, entries, examined, pacePercent, cursor } = given;
  const policy = policyOf(given);
  for (const [name, value] of Object.entries({ atLeastUsed, entries, examined, pacePercent })) {
    if (value !== undefined) number(name, value, "a whole number");
  }
  if (cursor !== undefined && cursor !== null) text("cursor", cursor, "the cursor of a page");
  return { policy, keyPrefix, atLeastUsed, entries, examined, pacePercent, cursor: cursor ?? undefined };
}

export function list(limiter: object, options: ListOptions): Promise<KeyPage> {
  return operateAll(limiter, (native) => native.list(settingsOf(options, LIST)), readReport<KeyPage>);
}

export function scanTop(limiter: object, most: number, options: ScanTopOptions): Promise<KeyPage> {
  return operateAll(
    limiter,
    (native) => native.scanTop(number("most", most, MOST), settingsOf(options, FILTER)),
    readReport<KeyPage>,
  );
}

export function resetListed(limiter: object, options: ListOptions): Promise<ResetPage> {
  return operateAll(limiter, (native) => native.resetListed(settingsOf(options, LIST)), readReport<ResetPage>);
}

export function explain(limiter: object, key: Key, options: RequestOptions | string | Quota): Promise<KeyExplanation> {
  return operateAll(limiter, (native) => native.explain(requestRow(key, options)), readReport<KeyExplanation>);
}

export function explainRequest(limiter: object, request: RequestAttributes): Promise<RequestExplanation> {
  return operateAll(limiter, (native) => native.explainRequest(attributesRow(request)), readReport<RequestExplanation>);
}

export function topKeys(limiter: object, most: number): TopKeys {
  const native = nativeOf(limiter);
  number("most", most, MOST);
  return parsed(callNative(() => native.topKeys(most)));
}

function readReport<T>(): T {
  return parsed(exchange.report());
}

/** A report of the core, with the names and the units of JavaScript. The names of its fields are none of users. */
function parsed<T>(json: string): T {
  return converted(JSON.parse(json)) as T;
}

function converted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(converted);
  return Object.fromEntries(Object.entries(value).flatMap(([name, field]) => convertedField(name, field)));
}

function convertedField(name: string, value: unknown): [name: string, value: unknown][] {
  const own = camelCase(name);
  if (!own.endsWith("Us")) return [[own, converted(value)]];
  const us = value as number | null;
  const base = own.slice(0, -"Us".length);
  if (base === "retryAfter") {
    return [
      [`${base}Ms`, wholeMs(us)],
      [own, us],
    ];
  }
  if (base === "until") return [[base, us === null ? null : new Date(us / 1000)]];
  return [[`${base}Ms`, us === null ? null : us / 1000]];
}
