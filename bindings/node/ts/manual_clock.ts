import type { NativeClock } from "./addon";
import { number } from "./argument";
import { calling, failureOf } from "./failure";
import { native } from "./native";

const TIME = "a number of microseconds since the Unix epoch";

const natives = new WeakMap<ManualClock, NativeClock>();

/** A clock for tests: it stands still until it is set or advanced, and it may go back. */
export class ManualClock {
  /**
   * @param nowUs whole microseconds since the Unix epoch, up to 2^53 - 1
   * @throws PolylimitError `invalid_argument`
   */
  constructor(nowUs: number) {
    number("nowUs", nowUs, TIME);
    natives.set(
      this,
      calling(() => new native.NativeClock(nowUs)),
    );
  }

  /** The time it shows, in microseconds since the Unix epoch. */
  get nowUs(): number {
    return nativeClock(this).nowUs();
  }

  /** Sets the time, in whole microseconds since the Unix epoch. */
  setUs(nowUs: number): void {
    number("nowUs", nowUs, TIME);
    calling(() => nativeClock(this).set(nowUs));
  }

  /** Moves the time forward, by milliseconds with a fraction down to the microsecond. */
  advanceMs(byMs: number): void {
    number("byMs", byMs, "a number of milliseconds");
    calling(() => nativeClock(this).advance(byMs));
  }
}

export function nativeClock(clock: ManualClock): NativeClock {
  const found = natives.get(clock);
  if (found === undefined) throw failureOf(false, "ManualClock", undefined);
  return found;
}
