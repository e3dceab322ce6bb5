package polylimit

import java.time.Duration
import java.time.temporal.ChronoUnit

/** Microseconds, as they cross the boundary. */
internal fun durationOf(microseconds: Long): Duration = Duration.of(microseconds, ChronoUnit.MICROS)

/** Whole microseconds; what is longer than there are numbers is as long as they go. */
internal fun microsecondsOf(duration: Duration): Long =
    try {
        Math.addExact(Math.multiplyExact(duration.seconds, 1_000_000L), duration.nano / 1_000L)
    } catch (_: ArithmeticException) {
        if (duration.isNegative) Long.MIN_VALUE else Long.MAX_VALUE
    }
