/** Checks of arguments. Each error names the argument, what was read and what is allowed. */

import { types } from "node:util";

import { invalidArgument, type PolylimitError } from "./errors";
import { camelCase } from "./names";
import { native, tables } from "./native";

/** A value as error messages show it. The content of a string is never shown, because it may be a key. */
export function describe(value: unknown): string {
  switch (typeof value) {
    case "bigint":
      return `the BigInt ${value}n`;
    case "number":
      // As the addon writes numbers.
      return Object.is(value, -0) ? "-0" : String(value);
    case "boolean":
    case "undefined":
      return String(value);
    case "string":
      return "a string";
    case "object":
      return value === null ? "null" : Array.isArray(value) ? "an array" : objectKind(value as object);
    default:
      return `a ${typeof value}`;
  }
}

/** The kind of an object, of which only the built-in ones have a name of their own, such as `Map`, `Date` and `Promise`. */
function objectKind(value: object): string {
  const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
  if (kind === "Object" || !/^[A-Z][A-Za-z0-9]{1,20}$/.test(kind)) return "an object";
  return `${/^[AEIO]/.test(kind) ? "an" : "a"} ${kind}`;
}

export function notAllowed(name: string, value: unknown, allowed: string): PolylimitError {
  return invalidArgument(`${name} is ${describe(value)}: allowed is ${allowed}`);
}

/** Checks that a value is a number; the core checks its range. */
export function number(name: string, value: unknown, allowed: string): number {
  if (typeof value !== "number") throw notAllowed(name, value, allowed);
  return value;
}

export function text(name: string, value: unknown, allowed: string): string {
  if (typeof value !== "string") throw notAllowed(name, value, allowed);
  return value;
}

export function optionalFunction<F>(name: string, value: F | undefined): F | undefined {
  if (value !== undefined && typeof value !== "function") throw notAllowed(name, value, "a function");
  return value;
}

/** Checks that a value is an abort signal, of this realm or of another one. */
export function optionalSignal(value: AbortSignal | undefined): AbortSignal | undefined {
  if (value === undefined) return undefined;
  const isSignal = typeof value === "object" && value !== null && typeof value.aborted === "boolean";
  if (!isSignal || typeof value.addEventListener !== "function") throw notAllowed("signal", value, "an AbortSignal");
  return value;
}

/**
 * Whether a value is an object with properties that a program has chosen. A Map or an array has entries in place of properties, and
 * the properties of a Date or a promise are other ones: options that were read from them would all be absent.
 */
export function hasProperties(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  if (Object.getPrototypeOf(value) === Object.prototype) return true;
  if (Symbol.iterator in value || typeof (value as { then?: unknown }).then === "function") return false;
  return Object.prototype.toString.call(value) === "[object Object]";
}

/** Checks that a value is an object of options with known names. Inherited properties are read, but need not be known. */
export function checkedOptions<T extends object>(
  what: string,
  options: T,
  names: readonly string[],
  position?: Position,
): T {
  if (!hasProperties(options)) throw notAllowed(what, options, "an object of options");
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw unknownOption(name, names, position);
  }
  return options;
}

/** What an object of options belongs to, by which an option of another limiter has another counterpart. */
export type Position = "limiter" | "request" | "list" | "guard";

/** Words of the text form of quotas, which are the same in every language. */
const QUOTA_WORDS: readonly string[] = [...tables.algorithms, "count_denied"];

/** The error for an unknown option: its counterpart, if another limiter has it, or the nearest name of those that are known here. */
export function unknownOption(name: string, names: readonly string[], position?: Position): PolylimitError {
  const advice = native
    .optionAdvice(name, position ?? "", names as string[])
    .replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (word) => (QUOTA_WORDS.includes(word) ? word : camelCase(word)));
  return invalidArgument(`option ${excerpt(name)} is not known: ${advice}`);
}

/** A string that the program chose (not a key) as messages show it. */
export function excerpt(text: string): string {
  return JSON.stringify(text.slice(0, 40));
}

/**
 * Identifies what is limited, such as a user or an address: text or bytes, up to 1 MiB. A whole number up to 2^53 - 1, or a
 * BigInt of at most 64 bits, stands for its decimal text: `42` and `"42"` are one key.
 */
export type Key = string | Uint8Array | number | bigint;

/** Converts numbers to text. `name` is that of the value in errors. */
export function keyOf(key: Key, name = "key"): string | Uint8Array {
  if (typeof key === "string" || types.isUint8Array(key)) return key;
  if (typeof key === "number" ? Number.isSafeInteger(key) : typeof key === "bigint" && isOf64Bits(key)) {
    return String(key);
  }
  throw invalidArgument(
    `${name} is ${describe(key)}: allowed are text, bytes, whole numbers up to 2^53 - 1 and a BigInt of at most 64 bits`,
  );
}

function isOf64Bits(key: bigint): boolean {
  return BigInt.asIntN(64, key) === key || BigInt.asUintN(64, key) === key;
}
