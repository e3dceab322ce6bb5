/** What limiters tell of themselves: as warnings of the process, and to a function of the program's own. */

import type { NativeEvent } from "./addon";
import type { Degradation } from "./tables";

/** Something that the doctor looked at. */
export interface Finding {
  readonly severity: "fine" | "advice" | "problem";
  readonly subject: string;
  /** What was found and what to do about it; holds no password and no key. */
  readonly message: string;
}

/** That a limiter decides without its store, or with it again, or what keeps its limits from being held. */
export interface DegradedEvent {
  readonly kind: "started" | "ended" | "finding";
  /** Why the first decision was made without the store; not there for a finding. */
  readonly reason?: Degradation;
  /** Milliseconds from the first decision that was made without the store to the last one; 0 unless it has ended. */
  readonly lastedMs: number;
  /** How many decisions were made without the store; 0 unless it has ended. */
  readonly decisions: number;
  /** How much it matters: `fine` when it is over. */
  readonly severity: Finding["severity"];
  /** What the doctor has found. */
  readonly finding?: Finding;
  /** A sentence for a log; holds no key, password or URL. */
  readonly message: string;
}

type Hook = (event: DegradedEvent) => void;

/** Limiters by their numbers. Neither they nor what their functions hold are kept by that. */
const limiters = new Map<number, WeakRef<object>>();
const hooks = new WeakMap<object, Hook>();
const gone = new FinalizationRegistry<number>((number) => limiters.delete(number));
let last = 0;

/** A number for a limiter, by which its events come. */
export function hearing(limiter: object, hook: Hook | undefined): number {
  last = (last + 1) >>> 0;
  if (hook === undefined) return last;
  limiters.set(last, new WeakRef(limiter));
  hooks.set(limiter, hook);
  gone.register(limiter, last);
  return last;
}

/** Tells an event. */
export function deliver({ limiter: number, ...native }: NativeEvent): void {
  const event = native as DegradedEvent;
  process.emitWarning(event.message, { type: "PolylimitWarning", code: `POLYLIMIT_${event.kind.toUpperCase()}` });
  const limiter = limiters.get(number)?.deref();
  if (limiter === undefined) return;
  try {
    hooks.get(limiter)?.(event);
  } catch (thrown) {
    // Others' decisions are no place for what goes wrong there.
    process.emitWarning(thrown instanceof Error ? thrown : `onDegraded threw ${String(thrown)}`);
  }
}
