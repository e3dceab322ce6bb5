/**
 * Questions on their way to the addon, and answers on their way back. Their numbers stand in arrays that both sides see,
 * short keys beside them, and the objects are made here: making one through Node-API, or reading a text, takes as long as
 * deciding.
 */

import { Field, Kind, Question } from "./addon";
import { deliver } from "./degraded";
import { failure, setErrorCodes } from "./failure";
import { native } from "./native";

export const tables = native.tables();
setErrorCodes(tables.errors.map(({ code }) => code));

const LENGTH: number = Field.FirstQuota + 3 * 16;

/** The numbers of the newest answer. */
const fields: Float64Array = new Float64Array(LENGTH);
/** The whole numbers of what is asked. */
const question: Int32Array = new Int32Array(Question.OutcomesAdded + 1);

// As constants of each module that uses them often they need not be looked up in what this one exports with every use.
export { fields, question };

/** Longer keys are read by the addon. */
const SHORT = 40;
const shortKey = new Uint8Array(SHORT);
/** Bound here: once some package has touched the prototype of strings, looking it up there takes longer than all the rest. */
const unitAt: (text: string, at: number) => number = Function.prototype.call.bind(String.prototype.charCodeAt);

export const exchange = new native.NativeExchange(fields, question, shortKey, drain, tell);
const start = exchange.starter();
const next = exchange.finished();

/** Writes a key to its place if it is short and ASCII, and says whether it was. */
export function isWritten(key: string | Uint8Array): boolean {
  question[Question.KeyLength] = -1;
  if (typeof key !== "string") return false;
  const { length } = key;
  if (length > SHORT) return false;
  for (let at = 0; at < length; at++) {
    const unit = unitAt(key, at);
    if (unit > 0x7f) return false;
    shortKey[at] = unit;
  }
  question[Question.KeyLength] = length;
  return true;
}

interface Waiter {
  readonly read: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

const waiters = new Map<number, Waiter>();

/** Whether what is asked from here on is started along with what was. */
let starting = false;
const now = Promise.resolve();

/** Starts what was asked together, once nothing more is asked for the moment: it travels together then. */
function startAll(): void {
  starting = false;
  start();
}

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
    if (!starting) {
      starting = true;
      now.then(startAll);
    }
    waiters.set(ticket, { read, resolve: resolve as (answer: unknown) => void, reject });
  });
}

/** Called by the addon after something has finished, once for many. */
function drain(): void {
  for (next(); fields[Field.Ticket] !== 0; next()) {
    const ticket = fields[Field.Ticket];
    const waiter = waiters.get(ticket);
    waiters.delete(ticket);
    if (waiter !== undefined) settle(waiter);
  }
  if (waiters.size === 0) exchange.keepAlive(false);
}

/** Called by the addon when limiters have something to tell. */
function tell(): void {
  for (const event of exchange.events()) deliver(event);
}

function settle({ read, resolve, reject }: Waiter): void {
  try {
    if (fields[Field.Kind] === Kind.Failure) exchange.failure();
    resolve(read());
  } catch (thrown) {
    reject(failure(thrown));
  }
}
