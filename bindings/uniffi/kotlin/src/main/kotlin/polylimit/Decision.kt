package polylimit

import java.time.Duration

/**
 * The state of a key under one quota, after the operation, and in a decision the quota's own verdict on the request.
 *
 * @property limit the quota's limit, in units per period.
 * @property remaining whole units that this quota would still admit right now, 0 or more.
 * @property resetAfter how long until nothing counts as used under this quota if nothing else arrives, to the microsecond.
 * @property over units of the quota's excess that are in use: above 0 once use is beyond the limit.
 * @property allowed whether this quota admits the request; true where no quota was asked, and in a usage.
 * @property retryAfter how long until this quota would admit the same request if no other arrives: zero when it admits it, and null
 *   for never.
 */
public data class QuotaUsage(
    val limit: Long,
    val remaining: Long,
    val resetAfter: Duration,
    val over: Long,
    val allowed: Boolean,
    val retryAfter: Duration?,
)

/**
 * The answer to a check, a peek, a reserve or an acquire. Durations are exact to the microsecond.
 *
 * @property allowed whether every quota of the policy admits the request.
 * @property remaining whole units that can still be spent right now, after this decision: the least over the quotas.
 * @property retryAfter how long until the same request, alone, would be admitted: zero when it is allowed, and null for never,
 *   because the cost exceeds what a quota can ever admit.
 * @property resetAfter how long until nothing counts as used any more if nothing else arrives: the longest over the quotas.
 * @property delay how long this admitted request has to wait for its turn: leaky bucket only, otherwise zero.
 * @property over units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit.
 * @property source the source of the answer: `store`, `denial_cache`, `lease` or `configuration`, or the outage policy `fallback`,
 *   `allow` or `deny`.
 * @property isOutage whether the outage policy answered, since the store was unavailable.
 * @property degraded why this is not what a healthy store would have answered for this key alone, such as `timeout`; null
 *   otherwise.
 * @property cause why the request was denied, or is [shadowed]: `deny_list`, `missing_key`, `blocked`, `quota` or `concurrency`; or why
 *   it was admitted without the store: `off` or `allow_list`; null otherwise.
 * @property crossed whether this decision has made the use of some quota cross its limit, into its excess.
 * @property elastic whether the pool of an elastic policy has admitted the request.
 * @property shadowed whether the policy is in shadow and would have denied: the request is allowed, and has the cause and the
 *   [retryAfter] of the denial.
 * @property quotas the state under each quota, in the order of the policy.
 */
public data class Decision(
    val allowed: Boolean,
    val remaining: Long,
    val retryAfter: Duration?,
    val resetAfter: Duration,
    val delay: Duration,
    val over: Long,
    val source: String,
    val isOutage: Boolean,
    val degraded: String?,
    val cause: String?,
    val crossed: Boolean,
    val elastic: Boolean,
    val shadowed: Boolean,
    val quotas: List<QuotaUsage>,
)

/**
 * The answer to a take, a charge, a refund or a reset, or to a commit, cancel or renew of a reservation. Durations are exact to the
 * microsecond.
 *
 * @property remaining whole units that can still be spent right now: the least over the quotas.
 * @property resetAfter how long until nothing counts as used any more if nothing else arrives: the longest over the quotas.
 * @property taken the units that a take has spent from every quota, from 0 to its cost; 0 for every other operation.
 * @property found whether a commit, a cancel or a renew has found the reservation; true for every other operation.
 * @property repeated whether this was a commit of an id that was committed before and is remembered, so that nothing was charged.
 * @property over units of an excess that are in use, the most over the quotas.
 * @property source the source of the answer, such as `store`.
 * @property isOutage whether the outage policy answered, since the store was unavailable.
 * @property degraded why this is not what a healthy store would have answered for this key alone, such as `timeout`; null
 *   otherwise.
 * @property quotas the state under each quota, in the order of the policy.
 */
public data class Usage(
    val remaining: Long,
    val resetAfter: Duration,
    val taken: Long,
    val found: Boolean,
    val repeated: Boolean,
    val over: Long,
    val source: String,
    val isOutage: Boolean,
    val degraded: String?,
    val quotas: List<QuotaUsage>,
)

/**
 * The result of one of several checks: a decision or an error.
 *
 * @property decision the decision; null when there is an error.
 * @property errorCode the code of the error, such as `store_unavailable`; null when there is a decision.
 * @property errorMessage the error's message; null when there is a decision.
 */
public data class CheckResult(
    val decision: Decision?,
    val errorCode: String?,
    val errorMessage: String?,
)

private val SOURCES = sourceNames()
private val DEGRADATIONS = degradationNames()
private val CAUSES = causeNames()

private const val ALLOWED = 1
private const val IS_OUTAGE = 2
private const val FOUND = 4
private const val CROSSED = 8
private const val ELASTIC = 16
private const val SHADOWED = 32
private const val REPEATED = 64

/**
 * The answer in the buffer: a decision, a usage, a list of check results or of findings, a reservation, what a configuration decides, its status,
 * the bytes of a report, the reservations of requests, or Unit. An error is thrown.
 */
internal fun CallBuffer.answer(): Any =
    when (val kind = byte()) {
        0 -> throw error()
        1 -> decision()
        2 -> usage()
        3 -> list(::checkResult)
        4 -> Unit
        5 -> list { Finding(text(), text(), text()) }
        6 -> HeldReservation(long(), bytes(int()), decision())
        7 -> requestDecision()
        8 -> configurationStatus()
        9 -> list(::policyMatch)
        10 -> bytes(int())
        11 -> requestReservation()
        else -> throw PolylimitException.Internal("an answer of kind $kind is not known")
    }

private fun CallBuffer.requestReservation(): RequestReservation {
    val id = bytes(int()).decodeToString()
    // The kind of a list of results.
    byte()
    val decisions = list(::checkResult).map { it.get() }
    return RequestReservation(decisions.all { it.allowed }, decisions, id)
}

internal fun CallBuffer.error(): PolylimitException = errorOf(byte(), text())

private fun CallBuffer.checkResult(): CheckResult {
    if (byte() == 1) return CheckResult(decision(), null, null)
    val error = error()
    return CheckResult(null, error.code, error.message)
}

internal fun CallBuffer.decision(): Decision {
    val flags = byte()
    val source = byte()
    val degraded = byte()
    val cause = causeOf(byte())
    val remaining = long()
    val retryAfter = long()
    return Decision(
        allowed = flags and ALLOWED != 0,
        remaining = remaining,
        retryAfter = if (retryAfter < 0) null else durationOf(retryAfter),
        resetAfter = durationOf(long()),
        delay = durationOf(long()),
        over = long(),
        source = SOURCES[source],
        isOutage = flags and IS_OUTAGE != 0,
        degraded = if (degraded == 0) null else DEGRADATIONS[degraded - 1],
        cause = cause,
        crossed = flags and CROSSED != 0,
        elastic = flags and ELASTIC != 0,
        shadowed = flags and SHADOWED != 0,
        quotas = list(::quotaUsage),
    )
}

private fun CallBuffer.quotaUsage(): QuotaUsage {
    val (limit, remaining) = long() to long()
    val resetAfter = durationOf(long())
    val over = long()
    val retryAfter = long()
    return QuotaUsage(limit, remaining, resetAfter, over, retryAfter == 0L, if (retryAfter < 0) null else durationOf(retryAfter))
}

/** The name of a cause; 0 is none. */
internal fun causeOf(number: Int): String? = if (number == 0) null else CAUSES[number - 1]

/** The place of a name in such a table. */
private fun List<String>.placeOf(
    what: String,
    name: String,
): Int {
    val place = indexOf(name)
    if (place < 0) throw PolylimitException.InvalidArgument("$what $name is not known: pass a decision as a limiter has made it")
    return place
}

/** Writes a decision as it was read. */
internal fun CallBuffer.putDecision(decision: Decision) {
    val flags = (if (decision.allowed) ALLOWED else 0) or (if (decision.isOutage) IS_OUTAGE else 0)
    val others = (if (decision.crossed) CROSSED else 0) or (if (decision.elastic) ELASTIC else 0)
    putByte(flags or others or if (decision.shadowed) SHADOWED else 0)
    putByte(SOURCES.placeOf("source", decision.source))
    putByte(decision.degraded?.let { 1 + DEGRADATIONS.placeOf("degradation", it) } ?: 0)
    putByte(decision.cause?.let { 1 + CAUSES.placeOf("cause", it) } ?: 0)
    putLong(decision.remaining).putLong(decision.retryAfter?.let(::microsecondsOf) ?: -1)
    putLong(microsecondsOf(decision.resetAfter)).putLong(microsecondsOf(decision.delay))
    putLong(decision.over)
    putInt(decision.quotas.size)
    for (quota in decision.quotas) {
        putLong(quota.limit).putLong(quota.remaining).putLong(microsecondsOf(quota.resetAfter)).putLong(quota.over)
        putLong(quota.retryAfter?.let(::microsecondsOf) ?: -1)
    }
}

private fun CallBuffer.usage(): Usage {
    val flags = byte()
    val source = byte()
    val degraded = byte()
    byte()
    val remaining = long()
    long()
    val resetAfter = durationOf(long())
    return Usage(
        remaining = remaining,
        resetAfter = resetAfter,
        taken = long(),
        found = flags and FOUND != 0,
        repeated = flags and REPEATED != 0,
        over = long(),
        source = SOURCES[source],
        isOutage = flags and IS_OUTAGE != 0,
        degraded = if (degraded == 0) null else DEGRADATIONS[degraded - 1],
        quotas = list(::quotaUsage),
    )
}
