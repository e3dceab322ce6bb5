package polylimit

import java.time.Duration

/**
 * How a reservation is made, kept and ended.
 *
 * @property ttl how long the reservation lasts after its last renewal: 1 ms to 48 h, in whole microseconds; null is 30 seconds. So
 *   long its units stay set aside after its holder died.
 * @property timeout how long the caller waits in line, as in [Limiter.acquire], until the reservation is admitted; null is not at all.
 * @property maxAge how long the reservation is renewed in the background, every third of its ttl: null is one hour, and zero never
 *   renews it.
 * @property commitAtEnd whether a reservation that is left without a commit or a cancel is committed with what was reserved, in place
 *   of cancelled.
 * @property id names the reservation: 1 to 64 bytes of UTF-8; null is a random one. A caller that has received no answer repeats the
 *   operation with the same id.
 * @property remember how long after its commit the id is remembered: 1 ms to 48 h; null does not remember it. Meanwhile nothing more is
 *   charged for the id under this key and policy: a commit that is repeated is reported as [Usage.repeated], and a reserve, of a job
 *   that runs again, asks for a slot only. A key remembers its 1,000 latest commits.
 */
public data class ReserveOptions
    @JvmOverloads
    constructor(
        val ttl: Duration? = null,
        val timeout: Duration? = null,
        val maxAge: Duration? = null,
        val commitAtEnd: Boolean = false,
        val id: String? = null,
        val remember: Duration? = null,
    )

/**
 * The decisions on requests that were reserved together, and the id of their reservations.
 *
 * @property allowed whether every request is admitted, so that units are set aside or spent.
 * @property decisions the decision on each request, in their order; in a denied request, those that admit are the decisions of a peek.
 * @property id the id, for [Limiter.commit], [Limiter.cancel] and [Limiter.renew].
 */
public data class RequestReservation(
    val allowed: Boolean,
    val decisions: List<Decision>,
    val id: String,
)

/** Cancels what was reserved for a caller that gave up. What was spent stays spent, as with a check. */
internal fun RequestReservation.cancelAll(
    requests: List<Request>,
    target: CallTarget,
) {
    if (!allowed) return
    for (request in requests) target.finish(Call.cancel(request, reservationNamed(id)))
}

private const val HAS_TTL = 1
private const val HAS_MAX_AGE = 2
private const val COMMITS_AT_END = 4

/** The terms of reservations that have no handle. */
internal fun CallBuffer.putTerms(
    id: String?,
    ttl: Duration?,
    remember: Duration?,
): CallBuffer {
    putText(id).put(ttl != null).putLong(ttl?.let { microsecondsOf("ttl", it) } ?: 0)
    return putLong(remember?.let { microsecondsOf("remember", it) } ?: 0)
}

internal fun CallBuffer.putOptions(options: ReserveOptions) {
    putText(options.id)
    val times = (if (options.ttl != null) HAS_TTL else 0) or if (options.maxAge != null) HAS_MAX_AGE else 0
    putByte(times or if (options.commitAtEnd) COMMITS_AT_END else 0)
    putLong(options.ttl?.let { microsecondsOf("ttl", it) } ?: 0).putLong(options.maxAge?.let { microsecondsOf("maxAge", it) } ?: 0)
    putLong(options.remember?.let { microsecondsOf("remember", it) } ?: 0)
}
