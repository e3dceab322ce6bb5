package polylimit

import java.time.Duration

/** A duration of the native library, in microseconds. */
internal fun durationOf(microseconds: Long): Duration =
    if (microseconds == 0L) {
        Duration.ZERO
    } else {
        Duration.ofSeconds(Math.floorDiv(microseconds, 1_000_000L), Math.floorMod(microseconds, 1_000_000L) * 1_000)
    }

/** The microseconds of an argument, whose name and value an error shows as the caller has written them. */
internal fun microsecondsOf(
    name: String,
    duration: Duration,
): Long {
    if (duration.isNegative) throw PolylimitException.InvalidArgument("$name is $duration: allowed is PT0S or more")
    return microsecondsOf(duration)
}

/** Whole microseconds; saturates at the bounds of `Long`. */
internal fun microsecondsOf(duration: Duration): Long =
    try {
        Math.addExact(Math.multiplyExact(duration.seconds, 1_000_000L), duration.nano / 1_000L)
    } catch (_: ArithmeticException) {
        if (duration.isNegative) Long.MIN_VALUE else Long.MAX_VALUE
    }
