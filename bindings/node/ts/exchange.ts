/**
 * Questions on their way to the addon, and answers on their way back. Their numbers stand in an array that both sides see,
 * short keys beside it, and the objects are made here: making one through Node-API, or reading a text, takes as long as
 * deciding.
 */

import { Field, Kind } from "./addon";
import { failure, setErrorCodes } from "./failure";
import { native } from "./native";

export const tables = native.tables();
setErrorCodes(tables.errors.map(({ code }) => code));

const LENGTH: number = Field.FirstQuota + 3 * 16;

/** The numbers of the newest answer. */
export const fields: Float64Array = new Float64Array(LENGTH);

/** Longer keys are read by the addon. */
const SHORT = 40;
const shortKey = new Uint8Array(SHORT);
/** Bound here: once some package has touched the prototype of strings, looking it up there takes longer than all the rest. */
const unitAt: (text: string, at: number) => number = Function.prototype.call.bind(String.prototype.charCodeAt);

export const exchange = new native.NativeExchange(fields, shortKey, drain);

/** Writes a key to its place if it is short and ASCII, and says whether it was. */
export function isWritten(key: string | Uint8Array): boolean {
  fields[Field.KeyLength] = -1;
  if (typeof key !== "string") return false;
  const { length } = key;
  if (length > SHORT) return false;
  for (let at = 0; at < length; at++) {
    const unit = unitAt(key, at);
    if (unit > 0x7f) return false;
    shortKey[at] = unit;
  }
  fields[Field.KeyLength] = length;
  return true;
}

interface Waiter {
  readonly read: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

const waiters = new Map<number, Waiter>();

/** What was just asked: at once where it has answered, otherwise when it does. */
export function answered<T>(read: () => T): Promise<T> {
  return fields[Field.Ticket] === 0 ? Promise.resolve(read()) : later(read);
}

/** What was just asked and has not answered yet. */
export function later<T>(read: () => T): Promise<T> {
  const ticket = fields[Field.Ticket];
  return new Promise<T>((resolve, reject) => {
    // Somebody waits for it, so the process does.
    if (waiters.size === 0) exchange.keepAlive(true);
    waiters.set(ticket, { read, resolve: resolve as (answer: unknown) => void, reject });
  });
}

/** Called by the addon after something has finished, once for many. */
function drain(): void {
  exchange.drain();
  for (let ticket = exchange.next(); ticket !== 0; ticket = exchange.next()) {
    const waiter = waiters.get(ticket);
    waiters.delete(ticket);
    if (waiter !== undefined) settle(waiter);
  }
  if (waiters.size === 0) exchange.keepAlive(false);
}

function settle({ read, resolve, reject }: Waiter): void {
  try {
    if (fields[Field.Kind] === Kind.Failure) exchange.failure();
    resolve(read());
  } catch (thrown) {
    reject(failure(thrown));
  }
}
