import type { NativeClock } from "./addon";
import { number } from "./arguments";
import { callNative, methodError } from "./errors";
import { native } from "./native";

const TIME = "a number of microseconds since the Unix epoch";

const natives = new WeakMap<ManualClock, NativeClock>();

/** A clock for tests. It stands still until it is set or advanced, and may go back. */
export class ManualClock {
  /**
   * @param nowUs whole microseconds since the Unix epoch, up to 2^53 - 1
   * @throws PolylimitError `invalid_argument`
   */
  constructor(nowUs: number) {
    number("nowUs", nowUs, TIME);
    natives.set(
      this,
      callNative(() => new native.NativeClock(nowUs)),
    );
  }

  /** The current time, in microseconds since the Unix epoch. */
  get nowUs(): number {
    return nativeClock(this).nowUs();
  }

  /** Sets the time, in whole microseconds since the Unix epoch. */
  setUs(nowUs: number): void {
    number("nowUs", nowUs, TIME);
    callNative(() => nativeClock(this).set(nowUs));
  }

  /** Moves the time forward, by milliseconds with a fraction down to the microsecond. */
  advanceMs(byMs: number): void {
    number("byMs", byMs, "a number of milliseconds");
    callNative(() => nativeClock(this).advance(byMs));
  }
}

export function nativeClock(clock: ManualClock): NativeClock {
  const found = natives.get(clock);
  if (found === undefined) throw methodError(false, "ManualClock", undefined);
  return found;
}
