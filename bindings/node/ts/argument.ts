/** Checks what people pass, and says the name of what is wrong. */

import { PolylimitError } from "./failure";
import { native } from "./native";

export function invalidArgument(message: string): PolylimitError {
  return new PolylimitError("invalid_argument", message);
}

/** What was read, for a message. Never a text as it is: it may be a key. */
export function described(value: unknown): string {
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

export function refused(name: string, value: unknown, allowed: string): PolylimitError {
  return invalidArgument(`${name} is ${described(value)}: allowed is ${allowed}`);
}

/** A number; the core says which ones. */
export function number(name: string, value: unknown, allowed: string): number {
  if (typeof value !== "number") throw refused(name, value, allowed);
  return value;
}

export function text(name: string, value: unknown, allowed: string): string {
  if (typeof value !== "string") throw refused(name, value, allowed);
  return value;
}

export function optionalFunction<F>(name: string, value: F | undefined): F | undefined {
  if (value !== undefined && typeof value !== "function") throw refused(name, value, "a function");
  return value;
}

/** An object of options, every one of which has to be known. What it has inherited is read, but need not be known. */
export function known<T extends object>(what: string, options: T, names: readonly string[]): T {
  // What is a Map, say, has no names that could be looked at.
  if (typeof options !== "object" || options === null || Symbol.iterator in options) {
    throw refused(what, options, "an object of options");
  }
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw unknownOption(name, names);
  }
  return options;
}

/** An option that there is not: one that another rate limiter has is answered with ours, if that is among the names. */
export function unknownOption(name: string, names: readonly string[]): PolylimitError {
  const known = native.suggestion(name);
  const ours = known && names.find((own) => [own, OTHERWISE[own]].includes(camelCase(known.name)));
  const advice = ours ? [ours, known.hint].filter(Boolean).join(", ") : `one of ${names.join(", ")}`;
  return invalidArgument(`option ${excerpt(name)} is not known: use ${advice}`);
}

/** Options that do here what the core's suggestions call by another name. */
const OTHERWISE: Readonly<Record<string, string>> = { policies: "policy", limiter: "store" };

/** A name of the core as JavaScript writes it. */
export function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** A text of the program's own as a message shows it. */
export function excerpt(text: string): string {
  return JSON.stringify(text.slice(0, 40));
}
