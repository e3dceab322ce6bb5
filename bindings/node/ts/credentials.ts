/** The function by which a program gives the credentials of connections. */

import type { NativeCredentials } from "./addon";
import { callNative } from "./errors";
import { native } from "./native";

/** A password, and the user that it belongs to; without one, the default user. */
export interface Credentials {
  readonly username?: string;
  readonly password: string;
}

/** Gives the password, or user and password, for a new connection. */
export type GiveCredentials = () => string | Credentials | Promise<string | Credentials>;

const ALLOWED = "allowed is a password, or an object with username and password";

function read(given: unknown): Credentials {
  if (typeof given === "string") return { password: given };
  const { username, password } = (given ?? {}) as { username?: unknown; password?: unknown };
  if (typeof password !== "string" || (username !== undefined && typeof username !== "string")) {
    // The value is not shown: it may hold a password.
    throw new TypeError(`the result of credentials is of type ${given === null ? "null" : typeof given}: ${ALLOWED}`);
  }
  return { username, password };
}

/** The calls of a function, for as long as the result is held. */
export function nativeCredentials(give: GiveCredentials): NativeCredentials {
  const answer = async (): Promise<void> => {
    try {
      const { username, password } = read(await give());
      calls.deref()?.answer(username, password);
    } catch (thrown) {
      calls.deref()?.answer(undefined, undefined, thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  // The addon holds the function, which must not keep the calls of a limiter that is gone.
  const held = callNative(() => new native.NativeCredentials(() => void answer()));
  const calls = new WeakRef(held);
  return held;
}
