/**
 * Answers on their way from the addon. It writes their numbers into an array that both sides see, and the objects are
 * made here: making one through Node-API takes longer than deciding.
 */

import { Field, Kind } from "./addon";
import { failure, setErrorCodes } from "./failure";
import { native } from "./native";

export const tables = native.tables();
setErrorCodes(tables.errors.map(({ code }) => code));

const LENGTH: number = Field.FirstQuota + 3 * 16;

/** The numbers of the newest answer. */
export const fields: Float64Array = new Float64Array(LENGTH);

export const exchange = new native.NativeExchange(fields, drain);

interface Waiter {
  readonly read: () => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

const waiters = new Map<number, Waiter>();

/** What was just asked: at once where it has answered, otherwise when it does. */
export function answered<T>(read: () => T): Promise<T> {
  const ticket = fields[Field.Ticket];
  if (ticket === 0) return Promise.resolve(read());
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
