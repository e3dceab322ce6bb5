/** The limiter: its arguments as the module reads them. */

import { call, camelCase, notAllowed, publicError } from "./errors.js";
import { NativeLimiter, optionNames } from "./module/polylimit.js";
import type {
  CandidateCounts,
  Check,
  ConfigurationStatus,
  Decision,
  Key,
  LimiterOptions,
  Policy,
  PolicyMatch,
  Quotas,
  RequestAttributes,
  RequestDecision,
  RequestOptions,
  ReservationId,
  ReservationTerms,
  Usage,
} from "./types.js";
import { nativeClock, Quota } from "./values.js";

type Options = RequestOptions | string | Quota;

const encoder = new TextEncoder();
const natives = new WeakMap<object, NativeLimiter>();

/** Decides whether requests may proceed, for one or more policies, with states in the memory of the module. */
export class Limiter {
  readonly #native: NativeLimiter;

  /** @param url `memory:`; there is no other store here */
  constructor(url = "memory:", options: LimiterOptions = {}) {
    const { policies = {}, document, clock, ...others } = options;
    const settings = {
      url,
      policies: (policies instanceof Map ? [...policies] : Object.entries(policies)).map(policyRow),
      options: optionRows(others),
      document: document === undefined ? undefined : jsonText(document),
    };
    this.#native = call(() => new NativeLimiter(settings, clock && nativeClock(clock).share()));
    natives.set(this, this.#native);
  }

  /** Decides, and spends the cost from every quota of the policy when all admit it. */
  check(key: Key, options?: Options): Decision {
    return call(() => this.#native.operate("check", row(key, options)));
  }

  /** The same, under the name that it has in the package for Node. */
  checkSync(key: Key, options?: Options): Decision {
    return this.check(key, options);
  }

  /** The decision that a check would give now; leaves no trace. */
  peek(key: Key, options?: Options): Decision {
    return call(() => this.#native.operate("peek", row(key, options)));
  }

  /** Spends as much of the cost as every quota admits. */
  take(key: Key, options?: Options): Usage {
    return call(() => this.#native.operate("take", row(key, options)));
  }

  /** Spends the cost even if it exceeds what is left. */
  charge(key: Key, options?: Options): Usage {
    return call(() => this.#native.operate("charge", row(key, options)));
  }

  /** Gives units back. */
  refund(key: Key, options?: Options): Usage {
    return call(() => this.#native.operate("refund", row(key, options)));
  }

  /** Deletes the state of the key under its policy. */
  reset(key: Key, options?: Options): Usage {
    return call(() => this.#native.operate("reset", row(key, options)));
  }

  /** Checks several requests, each on its own. One that cannot be decided has an error in its place. */
  checkMany(checks: readonly (Check | Key)[]): (Decision | Error)[] {
    return call(() => this.#native.several("each", rows(checks))).map(publicError);
  }

  /** Decides several requests together: all spend, or none. */
  checkTogether(checks: readonly (Check | Key)[]): Decision[] {
    return call(() => this.#native.several("check", rows(checks)));
  }

  /** The decisions that these checks would get together. */
  peekTogether(checks: readonly (Check | Key)[]): Decision[] {
    return call(() => this.#native.several("peek", rows(checks)));
  }

  /** Decides as a check does and, when admitted, sets the cost aside until the reservation is committed or cancelled, or has ended. */
  reserve(key: Key, options: Options & ReservationTerms = {}): Reservation {
    const request = row(key, options);
    const [decision, id] = call(() => this.#native.reserve([request], terms(isPolicy(options) ? {} : options)));
    return new Reservation(this, request, decision, id);
  }

  /** Reserves under several policies together. */
  reserveTogether(checks: readonly (Check | Key)[], options: ReservationTerms = {}) {
    const [decisions, id]: [Decision[], Uint8Array] = call(() => this.#native.reserve(rows(checks), terms(options)));
    return { allowed: decisions.every(({ allowed }) => allowed), decisions, id: idValue(id) };
  }

  /** Ends the reservation with this id, and charges `spent` units, or what was reserved. */
  commit(key: Key, id: ReservationId, options: Options & { readonly spent?: number | undefined } = {}): Usage {
    const spent = isPolicy(options) ? undefined : options.spent;
    return call(() => this.#native.end("commit", row(key, options), bytes(id), spent));
  }

  /** Ends the reservation with this id, and spends nothing. */
  cancel(key: Key, id: ReservationId, options?: Options): Usage {
    return call(() => this.#native.end("cancel", row(key, options), bytes(id)));
  }

  /** Makes the reservation with this id end `ttlMs` milliseconds from now. */
  renew(key: Key, id: ReservationId, ttlMs: number, options?: Options): Usage {
    return call(() => this.#native.end("renew", row(key, options), bytes(id), ttlMs));
  }

  /** Decides a request by the lists, rules and policies of the document. */
  decide(request: RequestAttributes, options: ReservationTerms = {}): RequestDecision {
    return call(() => this.#native.decide(attributes(request), terms(options)));
  }

  /** Adds a policy, or changes the quotas of an existing one. */
  setPolicy(name: string, quotas: Quotas): void {
    call(() => this.#native.setPolicy(name, quotasText(quotas)));
  }

  /** The names of the policies, those of the document included. */
  policies(): string[] {
    return this.#native.policies();
  }

  /** The counters of the limiter. */
  stats(): Record<string, number> {
    const flat = call(() => this.#native.stats());
    return Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at], flat[2 * at + 1]]));
  }

  /** The operations of operators. */
  admin(): Admin {
    return new Admin(this);
  }

  /** Ends the limiter; every later operation fails with `closed`. */
  close(): void {
    this.#native.close();
  }
}

/** The operations of a limiter that only operators use. */
export class Admin {
  readonly #native: NativeLimiter;

  /** @internal */
  constructor(limiter: Limiter) {
    this.#native = natives.get(limiter) as NativeLimiter;
  }

  /** Denies the key for that many milliseconds; 0 forgets the block. */
  block(key: Key, forMs: number, options?: Options): Usage {
    return call(() => this.#native.block(row(key, options), forMs));
  }

  /** Replaces the document. */
  setDocument(document: string | object): ConfigurationStatus {
    return call(() => this.#native.setDocument(jsonText(document)));
  }

  /** Sets an entry: `deny ITEM`, `allow ITEM` or `override POLICY KEY`. */
  setEntry(entry: string, value: string | object): ConfigurationStatus {
    return call(() => this.#native.setEntry(entry, jsonText(value)));
  }

  deleteEntry(entry: string): ConfigurationStatus {
    return call(() => this.#native.deleteEntry(entry));
  }

  /** Which document is active; `undefined` without one. */
  configuration(): ConfigurationStatus | undefined {
    return call(() => this.#native.configuration());
  }

  /** The policies that the rules apply to a request. */
  matching(request: RequestAttributes): PolicyMatch[] {
    return call(() => this.#native.matching(attributes(request)));
  }

  candidateCounts(policy: string): CandidateCounts | undefined {
    return call(() => this.#native.candidateCounts(policy));
  }

  /** Why a request of the key would be admitted or denied; charges nothing. */
  explain(key: Key, options?: Options): unknown {
    return JSON.parse(call(() => this.#native.operate("explain", row(key, options))));
  }

  /** Why a request, by its attributes, would be admitted or denied. */
  explainRequest(request: RequestAttributes): unknown {
    return JSON.parse(call(() => this.#native.explainRequest(attributes(request))));
  }

  /** How many keys have a state. */
  keys(): number | undefined {
    return this.#native.keys();
  }
}

/** Units that are set aside. A denied request has one, too, with `allowed: false`. */
export class Reservation {
  readonly decision: Decision;
  readonly id: ReservationId;
  readonly #limiter: Limiter;
  readonly #request: Row;

  /** @internal */
  constructor(limiter: Limiter, request: Row, decision: Decision, id: Uint8Array) {
    this.#limiter = limiter;
    this.#request = request;
    this.decision = decision;
    this.id = idValue(id);
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Ends the reservation, and charges what was spent, or what was reserved. */
  commit(spent?: number): Usage {
    const { key, policy, plan } = this.#request;
    return this.#limiter.commit(key, this.id, { policy, plan, spent });
  }

  /** Ends the reservation, and spends nothing. */
  cancel(): Usage {
    const { key, policy, plan } = this.#request;
    return this.#limiter.cancel(key, this.id, { policy, plan });
  }
}

interface Row {
  readonly key: Uint8Array;
  readonly policy?: string | undefined;
  readonly cost?: number | undefined;
  readonly headroom?: number | undefined;
  readonly plan?: string | undefined;
}

function isPolicy(options: unknown): options is string | Quota {
  return typeof options === "string" || options instanceof Quota;
}

function row(key: Key, options: Options = {}): Row {
  if (isPolicy(options)) return { key: bytes(key), policy: String(options) };
  const { policy, cost, headroom, plan } = options;
  return { key: bytes(key), policy: policy === undefined ? undefined : String(policy), cost, headroom, plan };
}

function rows(checks: readonly (Check | Key)[]): Row[] {
  return checks.map((check) => (isKey(check) ? row(check) : row(check.key, check)));
}

function isKey(value: Check | Key): value is Key {
  return typeof value !== "object" || value instanceof Uint8Array;
}

function bytes(key: Key): Uint8Array {
  if (typeof key === "string") return encoder.encode(key);
  if (key instanceof Uint8Array) return key;
  if (typeof key === "bigint" || Number.isSafeInteger(key)) return encoder.encode(String(key));
  throw notAllowed("key", "text, a whole number or a Uint8Array");
}

/** Text where the bytes are UTF-8. */
function idValue(id: Uint8Array): ReservationId {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(id);
  } catch {
    return id;
  }
}

function terms({ id, ttlMs, rememberMs }: ReservationTerms) {
  return { id: id === undefined ? undefined : bytes(id), ttlMs, rememberMs };
}

function attributes({ method, path, peer, headers = [], attributes = {} }: RequestAttributes) {
  const given = Object.entries(attributes).filter(([, value]) => value !== undefined && value !== null);
  return {
    method,
    path,
    peer,
    headers: headerPairs(headers),
    attributes: given.map(([name, value]) => ({ name, value: bytes(value as Key) })),
  };
}

function headerPairs(headers: NonNullable<RequestAttributes["headers"]>): (readonly [string, string])[] {
  if (Symbol.iterator in headers) return [...headers];
  return Object.entries(headers).flatMap(([name, value]) => {
    const values = value === undefined ? [] : typeof value === "string" ? [value] : value;
    return values.map((value) => [name, value] as const);
  });
}

function policyRow([name, policy]: readonly [string, Policy]) {
  const isOptions = typeof policy === "object" && "quotas" in policy;
  const { quotas, outage = undefined } = isOptions ? policy : { quotas: policy };
  return { name, quotas: quotasText(quotas), outage };
}

function quotasText(quotas: Quotas): string {
  return Array.isArray(quotas) ? quotas.join("; ") : String(quotas);
}

function optionRows(options: object): [string, string][] {
  const names = new Map(optionNames().map((name) => [camelCase(name), name]));
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => {
    const known = names.get(name);
    if (known === undefined)
      throw notAllowed(`the option ${name}`, "policies, document, clock, maxKeys or observeKeys");
    return [known, String(value)];
  });
}

function jsonText(value: string | object): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
