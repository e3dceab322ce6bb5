/** Options of a limiter by their names here, as the texts that the core reads. */

import { camelCase, known, refused } from "./argument";
import { native } from "./native";

const rows = new Map(native.limiterOptions().map((row) => [camelCase(row.name), row]));

const NAMES = ["policies", "clock", "onDegraded", ...rows.keys()];

/** The texts of the options that were given, those that the object has inherited among them. */
export function optionTexts(options: object): { name: string; text: string }[] {
  known("options", options, NAMES);
  const texts: { name: string; text: string }[] = [];
  for (const [given, row] of rows) {
    const value = (options as Record<string, unknown>)[given];
    if (value === undefined) continue;
    const allowed = row.kind === "duration" ? `${row.allowed}, as text or in milliseconds` : row.allowed;
    texts.push({ name: row.name, text: optionText(given, value, row.kind, allowed) });
  }
  return texts;
}

function optionText(name: string, value: unknown, kind: string, allowed: string): string {
  if (typeof value === "string") return value;
  if (typeof value !== "number" || kind === "text") throw refused(name, value, allowed);
  if (kind !== "duration") return plain(name, value, allowed);
  // The core reads whole numbers of a unit.
  return Number.isInteger(value) ? `${plain(name, value, allowed)}ms` : `${plain(name, value * 1000, allowed)}us`;
}

/** A number without an exponent. */
function plain(name: string, value: number, allowed: string): string {
  const text = String(value);
  if (!/^\d+(\.\d+)?$/.test(text)) throw refused(name, value, allowed);
  return text;
}
