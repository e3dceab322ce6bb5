/** Reservations: units of a key that are set aside until their holder commits or cancels them. */

import { types } from "node:util";

import type { KeyChoice, NativeLimiter, NativeReservation } from "./addon";
import { checkedOptions, type Key, keyOf, notAllowed, number, optionalFunction, optionalSignal } from "./arguments";
import { type Decision, readDecision, readDecisions, readUsage, type Usage } from "./decision";
import { methodError } from "./errors";
import { abortableAnswer, answerOf } from "./exchange";
import { limiterError, nativeOf, operateAll } from "./native_limiters";
import {
  type Check,
  COST,
  checkRows,
  costOf,
  headroomOf,
  isPolicy,
  planOf,
  policyOf,
  policyText,
  REQUEST,
  type RequestOptions,
  TIMEOUT,
} from "./options";
import type { Quota } from "./policy";

/** Names a reservation among those of its key: text or bytes, of 1 to 64 bytes. */
export type ReservationId = string | Uint8Array;

/** The options of a reserve. Durations are milliseconds, with a fraction down to the microsecond. */
export interface ReserveOptions extends RequestOptions {
  /** The id; random by default. A caller without an answer repeats the reserve with the same id: it reserves once. */
  readonly id?: ReservationId;
  /** How long the reservation lasts after its last renewal: 1 ms to 48 h; by default 30 s. */
  readonly ttlMs?: number;
  /** The longest wait in line, as in `acquire`, until the reservation is admitted; by default it does not wait. */
  readonly timeoutMs?: number;
  /** Ends the reserve when it is aborted before the answer: the promise rejects with its `reason`, and nothing stays reserved. */
  readonly signal?: AbortSignal;
  /** How long the handle renews the reservation, every third of its ttl; by default 1 h, and 0 never renews it. */
  readonly maxAgeMs?: number;
  /** Commits what was reserved when the handle ends without a commit, in place of cancelling; by default `false`. */
  readonly commitAtEnd?: boolean;
  /**
   * How long after its commit the id is remembered: 1 ms to 48 h; by default it is not. Meanwhile nothing more is charged for the id under
   * this key and policy: a commit that is repeated is reported as `repeated`, and a `reserve`, of a job that runs again, asks for a slot
   * only. A key remembers its 1,000 latest commits.
   */
  readonly rememberMs?: number;
}

/** The terms of reservations that have no handle: those of a `decide` and of a `reserveTogether`. */
export interface ReservationTerms {
  /** The id; random by default. A caller without an answer repeats the operation with the same id. */
  readonly id?: ReservationId;
  /** How long they last unless they are renewed: 1 ms to 48 h; by default 30 s. */
  readonly ttlMs?: number;
  /** How long after their commits the id is remembered, as in the options of a reserve; by default it is not. */
  readonly rememberMs?: number;
}

/** The decisions on checks that were reserved together, and the id of their reservations. */
export interface RequestReservation {
  /** Whether every check is admitted, so that units are set aside or spent. */
  readonly allowed: boolean;
  /** The decision on each check, in their order. In a denied request, those that admit are the decisions of a peek. */
  readonly decisions: readonly Decision[];
  /** The id, for the limiter's `commit`, `cancel` and `renew`: the given one, or random text. */
  readonly id: ReservationId;
}

/** The policy of an operation that spends nothing by itself, such as one on a reservation. */
export interface PolicyChoice {
  /** A policy's name, or quotas such as `"20 concurrent"`. It is optional when the limiter has one policy. */
  readonly policy?: string | Quota;
  /** The plan of the key, as in the options of a request. */
  readonly plan?: string;
}

export interface CommitOptions extends PolicyChoice {
  /** The units that were spent: a whole number from 0 to 10^12; by default what was reserved. */
  readonly spent?: number;
}

const RESERVE = [...REQUEST, "id", "ttlMs", "timeoutMs", "signal", "maxAgeMs", "commitAtEnd", "rememberMs"];
const TERMS = ["id", "ttlMs", "rememberMs"];
const CHOICE = ["policy", "plan"];
const DURATIONS = ["ttlMs", "timeoutMs", "maxAgeMs", "rememberMs"] as const;

/** A function that has a reservation until it has ended. */
export type ReservationUse<T> = (reservation: Reservation) => T | PromiseLike<T>;

const natives = new WeakMap<Reservation, NativeReservation>();
const committedAtEnd = new WeakSet<Reservation>();

/**
 * Units of a key that are set aside for their holder; `Limiter.reserve` makes it.
 *
 * While the handle lives, the limiter renews the reservation in the background, up to `maxAgeMs`. `await using` ends it with
 * its scope, and so does the garbage collector when the program has lost the handle: it cancels, or commits what was reserved
 * with `commitAtEnd`.
 */
export class Reservation {
  /**
   * For `await using`: ends the reservation unless it was committed or cancelled. A cancel without an answer is no error,
   * because the reservation then ends by its ttl; a commit without one is. JavaScript does not reveal whether an error has
   * left the scope, so that `commitAtEnd` commits in this case too; the function of `reserve` knows it.
   */
  declare [Symbol.asyncDispose]: () => Promise<void>;
  /** Whether every quota has admitted the request, so that its units are set aside. */
  declare readonly allowed: boolean;
  /** The decision on the request. */
  declare readonly decision: Decision;
  /** The id, by which any process can end the reservation: the given one, or random text. */
  declare readonly id: ReservationId;

  /** @internal */
  constructor(native: NativeReservation, decision: Decision, id: ReservationId, commitsAtEnd: boolean) {
    natives.set(this, native);
    if (commitsAtEnd) committedAtEnd.add(this);
    Object.freeze(Object.assign(this, { allowed: decision.allowed, decision, id }));
  }

  /**
   * Whether the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed
   * without a renewal. Its units may be admitted to others meanwhile.
   */
  get isLost(): boolean {
    const native = natives.get(this);
    if (native === undefined) throw methodError(false, "Reservation", undefined);
    return native.isLost();
  }

  /**
   * Ends the reservation, and charges what was spent: less than was reserved, more, or nothing; by default what was
   * reserved. If the reservation had ended before, nothing is charged, and `found` is `false`; with `rememberMs`, `repeated` says whether
   * it was committed before.
   */
  commit(spent?: number): Promise<Usage> {
    return operateOn(this, (native) => native.commit(spentOf(spent)), readUsage);
  }

  /** Ends the reservation, and spends nothing. */
  cancel(): Promise<Usage> {
    return operateOn(this, (native) => native.cancel(), readUsage);
  }
}

// The oldest supported version of Node has no such symbol.
if (Symbol.asyncDispose !== undefined) {
  Object.defineProperty(Reservation.prototype, Symbol.asyncDispose, {
    value(this: Reservation) {
      return end(this);
    },
  });
}

/** The operation `reserve` of a limiter. */
export function reserve(
  limiter: object,
  key: Key,
  options: ReserveOptions | string | Quota | undefined,
  use: ReservationUse<unknown> | undefined,
): Promise<unknown> {
  const reservation = startReserve(limiter, key, options, use);
  return use === undefined ? reservation : reservation.then((reservation) => during(reservation, use));
}

function startReserve(
  limiter: object,
  key: Key,
  options: ReserveOptions | string | Quota | undefined,
  use: ReservationUse<unknown> | undefined,
): Promise<Reservation> {
  try {
    const native = nativeOf(limiter);
    optionalFunction("use", use);
    const settings = settingsOf(options);
    const signal = isPolicy(options) ? undefined : optionalSignal(options?.signal);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const made = native.reserve(keyOf(key), { ...settings, isCancellable: signal !== undefined });
    const id = givenId(settings.id) ?? made.id();
    return abortableAnswer(() => new Reservation(made, readDecision(), id, settings.commitAtEnd === true), signal);
  } catch (thrown) {
    return Promise.reject(limiterError(limiter, thrown));
  }
}

/** The operation `reserveTogether` of a limiter. */
export function reserveTogether(
  limiter: object,
  checks: readonly (Check | string | number | bigint)[],
  options: ReservationTerms = {},
): Promise<RequestReservation> {
  let id: ReservationId;
  return operateAll(
    limiter,
    (native) => {
      const settings = termsSettings(options);
      const made = native.reserveTogether(checkRows(checks), settings);
      id = givenId(settings.id) ?? made;
    },
    () => {
      const decisions = readDecisions() as Decision[];
      return { allowed: decisions.every(({ allowed }) => allowed), decisions, id };
    },
  );
}

/** The terms of reservations as the addon takes them. */
export function termsSettings(options: ReservationTerms): ReservationTerms {
  const { id, ttlMs, rememberMs } = checkedOptions("options", options, TERMS);
  if (ttlMs !== undefined) number("ttlMs", ttlMs, TIMEOUT);
  if (rememberMs !== undefined) number("rememberMs", rememberMs, TIMEOUT);
  return { id: id === undefined ? undefined : idOf(id), ttlMs, rememberMs };
}

/** A copy of a given id, which does not change with the program's bytes. */
function givenId(id: ReservationId | undefined): ReservationId | undefined {
  return types.isUint8Array(id) ? new Uint8Array(id) : id;
}

export function commitReservation(
  limiter: object,
  key: Key,
  id: ReservationId,
  options: CommitOptions | string | Quota | undefined,
): Promise<Usage> {
  return onId(limiter, key, id, options, [...CHOICE, "spent"], (native, key, id, choice) => {
    const spent = options === undefined || isPolicy(options) ? undefined : options.spent;
    native.commit(key, id, spentOf(spent), choice);
  });
}

export function cancelReservation(
  limiter: object,
  key: Key,
  id: ReservationId,
  options: PolicyChoice | string | Quota | undefined,
): Promise<Usage> {
  return onId(limiter, key, id, options, CHOICE, (native, key, id, choice) => native.cancel(key, id, choice));
}

export function renewReservation(
  limiter: object,
  key: Key,
  id: ReservationId,
  ttlMs: number,
  options: PolicyChoice | string | Quota | undefined,
): Promise<Usage> {
  return onId(limiter, key, id, options, CHOICE, (native, key, id, choice) =>
    native.renew(key, id, number("ttlMs", ttlMs, TIMEOUT), choice),
  );
}

/** The operations `block` and, with a time of 0, `unblock` of an `Admin`. */
export function block(
  limiter: object,
  key: Key,
  forMs: number,
  options: PolicyChoice | string | Quota | undefined,
): Promise<Usage> {
  return operateAll(
    limiter,
    (native) => native.block(keyOf(key), number("forMs", forMs, TIMEOUT), choiceOf(options, CHOICE)),
    readUsage,
  );
}

/** An operation on the reservation with an id. */
function onId(
  limiter: object,
  key: Key,
  id: ReservationId,
  options: PolicyChoice | string | Quota | undefined,
  names: readonly string[],
  submit: (native: NativeLimiter, key: unknown, id: unknown, choice: KeyChoice) => void,
): Promise<Usage> {
  return operateAll(limiter, (native) => submit(native, keyOf(key), idOf(id), choiceOf(options, names)), readUsage);
}

/** The policy and the plan among options with these names. */
function choiceOf(options: PolicyChoice | string | Quota | undefined, names: readonly string[]): KeyChoice {
  if (isPolicy(options)) return { policy: policyText(options) };
  const given = checkedOptions("options", options ?? {}, names, "request");
  return { policy: policyOf(given), plan: planOf(given) };
}

/** The checked options of a reserve. */
type CheckedOptions = Omit<ReserveOptions, "policy" | "signal"> & { readonly policy?: string | undefined };

/** The checked options of a reserve, each read once. */
function settingsOf(options: ReserveOptions | string | Quota | undefined): CheckedOptions {
  if (options === undefined) return {};
  if (isPolicy(options)) return { policy: policyText(options) };
  checkedOptions("options", options, RESERVE, "request");
  const { id, ttlMs, timeoutMs, maxAgeMs, rememberMs, commitAtEnd } = options;
  const durations = { ttlMs, timeoutMs, maxAgeMs, rememberMs };
  for (const name of DURATIONS) if (durations[name] !== undefined) number(name, durations[name], TIMEOUT);
  if (commitAtEnd !== undefined && typeof commitAtEnd !== "boolean") {
    throw notAllowed("commitAtEnd", commitAtEnd, "true or false");
  }
  const given = id === undefined ? undefined : idOf(id);
  const [policy, cost, headroom, plan] = [policyOf(options), costOf(options), headroomOf(options), planOf(options)];
  return { policy, cost, headroom, plan, id: given, ...durations, commitAtEnd };
}

/** Checks that a value may be an id; the addon and the core check its bytes. */
function idOf(id: ReservationId): ReservationId {
  if (typeof id === "string" || types.isUint8Array(id)) return id;
  throw notAllowed("id", id, "text or a Uint8Array, of 1 to 64 bytes");
}

function spentOf(spent: number | undefined): number | undefined {
  return spent === undefined ? undefined : number("spent", spent, COST);
}

function operateOn<T>(
  reservation: Reservation,
  submit: (native: NativeReservation) => void,
  read: () => T,
): Promise<T> {
  const native = natives.get(reservation);
  try {
    submit(native as NativeReservation);
    return answerOf(read);
  } catch (thrown) {
    return Promise.reject(methodError(native !== undefined, "Reservation", thrown));
  }
}

async function during<T>(reservation: Reservation, use: ReservationUse<T>): Promise<T> {
  let result: T;
  try {
    result = await use(reservation);
  } catch (thrown) {
    // The program gets its own error. Without an answer to the cancel, the reservation ends by its ttl.
    if (natives.get(reservation)?.isOpen()) await reservation.cancel().catch(() => undefined);
    throw thrown;
  }
  await end(reservation);
  return result;
}

/** Ends a reservation that is neither committed nor cancelled. */
async function end(reservation: Reservation): Promise<void> {
  const native = natives.get(reservation);
  if (native === undefined) throw methodError(false, "Reservation", undefined);
  if (!native.isOpen()) return;
  const ended = operateOn(
    reservation,
    () => native.end(),
    () => undefined,
  );
  await (committedAtEnd.has(reservation) ? ended : ended.catch(() => undefined));
}
