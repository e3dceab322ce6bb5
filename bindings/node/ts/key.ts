/** Whom or what a policy is applied to. */

import { invalidArgument } from "./argument";

/**
 * Whom or what a policy is applied to, such as a user or an address: text or bytes, up to 1 MiB. A whole number up to 2^53 - 1,
 * or a BigInt of at most 64 bits, is its decimal text: `42` and `"42"` are one key.
 */
export type Key = string | Uint8Array | number | bigint;

/** A key as the addon reads it. What is none at all is left to it. */
export function keyOf(key: Key): string | Uint8Array {
  if (typeof key === "number" ? Number.isSafeInteger(key) : typeof key === "bigint" && isOf64Bits(key)) {
    return String(key);
  }
  if (typeof key === "number" || typeof key === "bigint") {
    throw invalidArgument(
      "key is a number that has no exact decimal text: allowed are whole numbers up to 2^53 - 1, a BigInt of at most 64 bits, " +
        "text and bytes",
    );
  }
  return key as string | Uint8Array;
}

function isOf64Bits(key: bigint): boolean {
  return BigInt.asIntN(64, key) === key || BigInt.asUintN(64, key) === key;
}
