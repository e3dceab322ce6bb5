/** What a request has spent, on its way past several guards: what two of them take from one policy is taken once. */

import type { Outcome } from "../headers";
import { type Key, keyOf } from "../key";
import type { Limiter } from "../limiter";

/** What was decided under a policy, and what that has spent. */
export interface Counted extends Outcome {
  readonly key: Key;
  /** What the request costs there, by all charges together. */
  readonly units: number;
  readonly charges: readonly Charge[];
}

/** Units that were spent in one go. */
export interface Charge {
  readonly policy: string;
  readonly key: Key;
  readonly units: number;
  /** How many guards count on them: they are given back when none of these counts the request. */
  claims: number;
}

/** What was counted for that key under that policy already. */
export function countedBefore(
  outcomes: readonly Counted[],
  limiter: Limiter,
  policy: string,
  key: Key,
): Counted | undefined {
  return outcomes.find(
    (one) => one.policy === policy && one.limiter === limiter && one.decision.allowed && isSame(one.key, key),
  );
}

function isSame(one: Key, other: Key): boolean {
  return one === other || Buffer.compare(bytes(one), bytes(other)) === 0;
}

function bytes(key: Key): Uint8Array {
  const text = keyOf(key);
  return typeof text === "string" ? Buffer.from(text) : text;
}
