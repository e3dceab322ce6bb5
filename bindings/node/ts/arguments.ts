/** Checks of arguments. Each error names the argument, what was read and what is allowed. */

import { invalidArgument, type PolylimitError } from "./errors";
import { native } from "./native";

/** A value as error messages show it. The content of a string is never shown, because it may be a key. */
export function describe(value: unknown): string {
  switch (typeof value) {
    case "bigint":
      return `the BigInt ${value}n`;
    case "number":
    case "boolean":
    case "undefined":
      return String(value);
    case "string":
      return "a string";
    case "object":
      return value === null ? "null" : Array.isArray(value) ? "an array" : "an object";
    default:
      return `a ${typeof value}`;
  }
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

/** Checks that a value is an object of options with known names. Inherited properties are read, but need not be known. */
export function checkedOptions<T extends object>(what: string, options: T, names: readonly string[]): T {
  // A Map, for example, has entries instead of properties.
  if (typeof options !== "object" || options === null || Symbol.iterator in options) {
    throw notAllowed(what, options, "an object of options");
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw unknownOption(name, names);
  }
  return options;
}

/** The error for an unknown option. For an option of another rate limiter it suggests the counterpart, if that is allowed here. */
export function unknownOption(name: string, names: readonly string[]): PolylimitError {
  const found = native.suggestion(name);
  const counterpart = found && names.find((own) => [own, CORE_NAMES[own]].includes(camelCase(found.name)));
  const advice = counterpart ? [counterpart, found.hint].filter(Boolean).join(", ") : `one of ${names.join(", ")}`;
  return invalidArgument(`option ${excerpt(name)} is not known: use ${advice}`);
}

/** The names in the core's suggestions of options that have another name here. */
const CORE_NAMES: Readonly<Record<string, string>> = { policies: "policy", limiter: "store" };

/** A name of the core in camel case. */
export function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
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

/** Converts numbers to text. The addon refuses a value that is not a key. */
export function keyOf(key: Key): string | Uint8Array {
  if (typeof key === "number" ? Number.isSafeInteger(key) : typeof key === "bigint" && isOf64Bits(key)) {
    return String(key);
  }
  if (typeof key === "number" || typeof key === "bigint") {
    throw invalidArgument(
      "key is a number without an exact decimal text: allowed are whole numbers up to 2^53 - 1, a BigInt of at most 64 bits, " +
        "text and bytes",
    );
  }
  return key as string | Uint8Array;
}

function isOf64Bits(key: bigint): boolean {
  return BigInt.asIntN(64, key) === key || BigInt.asUintN(64, key) === key;
}
