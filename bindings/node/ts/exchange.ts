/**
 * The way of requests to the addon and of answers back. Their numbers stand in arrays that both sides share, with a buffer for
 * short keys after them. Objects are created on this side, because creating one with Node-API, or reading a string there,
 * takes as long as a decision.
 */

import { setImmediate } from "node:timers";
import { AnswerKind, Field, RequestField } from "./addon";
import { toPublicError } from "./errors";
import { deliver } from "./events";
import { native } from "./native";

/** How many numbers each of several quotas has; those of at most 16 quotas stand last. */
export const NUMBERS_PER_QUOTA = 5;
const LENGTH: number = Field.FirstQuota + NUMBERS_PER_QUOTA * 16;

/** The numbers of the newest answer, by `Field`. */
const fields: Float64Array = new Float64Array(LENGTH);
/** The integers of a request, by `RequestField`. */
const request: Int32Array = new Int32Array(RequestField.Options + 1);

// Modules on the hot path copy these into constants of their own: an import of CommonJS is looked up with each use.
export { fields, request };

/** The capacity of the buffer. The addon reads a longer key as an argument. */
const SHORT = 40;
const shortKey = new Uint8Array(SHORT);
/** Bound once: if a package has changed the prototype of strings, finding the method there takes longer than all the rest. */
const unitAt: (text: string, at: number) => number = Function.prototype.call.bind(String.prototype.charCodeAt);

export const exchange = new native.NativeExchange(fields, request, shortKey, settleFinished, deliverEvents);
const start = exchange.startFunction();
const next = exchange.nextFunction();

/** Writes a key into the buffer if it is short and ASCII. Returns whether it did; otherwise the key must be an argument. */
export function writeShortKey(key: string | Uint8Array): boolean {
  request[RequestField.KeyLength] = -1;
  if (typeof key !== "string") return false;
  const { length } = key;
  if (length > SHORT) return false;
  for (let at = 0; at < length; at++) {
    const unit = unitAt(key, at);
    if (unit > 0x7f) return false;
    shortKey[at] = unit;
  }
  request[RequestField.KeyLength] = length;
  return true;
}

/** A pending operation: how to read its answer, and the promise to settle. */
interface PendingOperation {
  readonly read: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/** By ticket. */
const pending = new Map<number, PendingOperation>();

let isStartScheduled = false;
// Kept here: a test that replaces the timers of Node must not keep operations from starting.
const afterTurn = setImmediate;

/**
 * Starts the deferred operations. It runs at the end of the turn of the event loop, so that the requests of all sockets that were
 * ready share one write. If it ran as a microtask, after the callback of each socket, a request to a Fastify service with 16
 * connections would take 36 % more processor time; a lone caller waits as long either way.
 */
function startDeferred(): void {
  isStartScheduled = false;
  start();
}

/** The answer of the operation that was just submitted, as a promise. */
export function answerOf<T>(read: () => T): Promise<T> {
  return fields[Field.Ticket] === 0 ? Promise.resolve(read()) : pendingAnswer(read);
}

/** The same for an operation that is known to be pending. */
export function pendingAnswer<T>(read: () => T): Promise<T> {
  const ticket = fields[Field.Ticket];
  return new Promise<T>((resolve, reject) => {
    if (pending.size === 0) exchange.keepAlive(true);
    if (!isStartScheduled) {
      isStartScheduled = true;
      afterTurn(startDeferred);
    }
    pending.set(ticket, { read, resolve: resolve as (answer: unknown) => void, reject });
  });
}

/**
 * The answer of the acquire or the reserve that was just submitted. When the signal is aborted first, the promise rejects at once
 * with its reason, the operation leaves the line, and what it has got meanwhile is given back.
 */
export function abortableAnswer<T>(read: () => T, signal: AbortSignal | undefined): Promise<T> {
  const ticket = fields[Field.Ticket];
  const answer = answerOf(read);
  const operation = pending.get(ticket);
  if (signal === undefined || operation === undefined) return answer;
  const { resolve, reject } = operation;
  const abort = () => {
    if (!exchange.cancel(ticket)) return;
    pending.delete(ticket);
    if (pending.size === 0) exchange.keepAlive(false);
    stop();
    reject(signal.reason);
  };
  const stop = () => signal.removeEventListener("abort", abort);
  signal.addEventListener("abort", abort);
  pending.set(ticket, {
    read,
    resolve: (answer) => {
      stop();
      resolve(answer);
    },
    reject: (reason) => {
      stop();
      reject(reason);
    },
  });
  return answer;
}

/** The addon calls this after operations have finished, once for many of them. */
function settleFinished(): void {
  for (next(); fields[Field.Ticket] !== 0; next()) {
    const ticket = fields[Field.Ticket];
    const operation = pending.get(ticket);
    pending.delete(ticket);
    if (operation !== undefined) settle(operation);
  }
  if (pending.size === 0) exchange.keepAlive(false);
}

/** The addon calls this after limiters have raised events. */
function deliverEvents(): void {
  for (const event of exchange.events()) deliver(event);
}

function settle({ read, resolve, reject }: PendingOperation): void {
  try {
    if (fields[Field.Kind] === AnswerKind.Failure) exchange.throwError();
    resolve(read());
  } catch (thrown) {
    reject(toPublicError(thrown));
  }
}
