/** Events of limiters: each is a warning of the process, and calls the limiter's `onDegraded`. */

import type { NativeEvent } from "./addon";
import type { Degradation } from "./tables";

/** A finding of the doctor. */
export interface Finding {
  readonly severity: "fine" | "advice" | "problem";
  readonly subject: string;
  /** What was found, and what to do about it. It contains no password and no key. */
  readonly message: string;
}

/** A limiter begins to decide without its store, decides with it again, or its doctor has found something. */
export interface DegradedEvent {
  readonly kind: "started" | "ended" | "finding";
  /** Why the first decision was made without the store; absent for a finding. */
  readonly reason?: Degradation;
  /** Milliseconds from the first decision without the store to the last one; 0 unless `kind` is `ended`. */
  readonly lastedMs: number;
  /** The number of decisions that were made without the store; 0 unless `kind` is `ended`. */
  readonly decisions: number;
  /** How serious it is: `fine` when the outage is over. */
  readonly severity: Finding["severity"];
  /** The doctor's finding; absent for the other kinds. */
  readonly finding?: Finding;
  /** A sentence for a log. It contains no key, password or URL. */
  readonly message: string;
}

type Hook = (event: DegradedEvent) => void;

/** Limiters with a hook, by number. The references are weak, so that neither a limiter nor its hook is kept alive. */
const limiters = new Map<number, WeakRef<object>>();
const hooks = new WeakMap<object, Hook>();
const collected = new FinalizationRegistry<number>((number) => limiters.delete(number));
let lastNumber = 0;

/** Gives a limiter the number that its events carry. */
export function registerLimiter(limiter: object, hook: Hook | undefined): number {
  lastNumber = (lastNumber + 1) >>> 0;
  if (hook === undefined) return lastNumber;
  limiters.set(lastNumber, new WeakRef(limiter));
  hooks.set(limiter, hook);
  collected.register(limiter, lastNumber);
  return lastNumber;
}

/** Emits an event as a warning, and calls the hook of its limiter. */
export function deliver({ limiter: number, ...native }: NativeEvent): void {
  const event = native as DegradedEvent;
  process.emitWarning(event.message, { type: "PolylimitWarning", code: `POLYLIMIT_${event.kind.toUpperCase()}` });
  const limiter = limiters.get(number)?.deref();
  if (limiter === undefined) return;
  try {
    hooks.get(limiter)?.(event);
  } catch (thrown) {
    // An error of one hook must not reach the callers of other decisions.
    process.emitWarning(thrown instanceof Error ? thrown : `onDegraded threw ${String(thrown)}`);
  }
}
