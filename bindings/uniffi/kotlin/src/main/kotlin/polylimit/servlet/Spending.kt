package polylimit.servlet

import polylimit.Decision
import polylimit.Limiter
import polylimit.PolylimitException
import polylimit.Request
import polylimit.refunded
import java.util.IdentityHashMap
import java.util.concurrent.atomic.AtomicBoolean

/** One request to the limiter, with the decision that admitted it. */
internal class Spent(
    val request: Request,
    val decision: Decision,
)

/** The units that a request has spent in one filter, so that they can be refunded once. */
internal class Spending(
    private val limiter: Limiter,
    private val spent: List<Spent>,
    /** The units spent by the outer filters; null if none. */
    private val outer: Spending?,
    /** Called with the error of a refund. */
    private val failed: (PolylimitException) -> Unit,
) {
    private val isRefunded = AtomicBoolean()

    /** The decision by which the same key was charged under the same policy already, by this or an outer filter; null if it was not. */
    fun decision(
        limiter: Limiter,
        request: Request,
    ): Decision? {
        val here = if (limiter === this.limiter && !isRefunded.get()) spent.firstOrNull { it.isLike(request) } else null
        return here?.decision ?: outer?.decision(limiter, request)
    }

    private fun Spent.isLike(other: Request) = request.policy == other.policy && request.key.contentEquals(other.key)

    /** Refunds the units of this filter and all outer ones. Returns the refunded decision for each decision. */
    fun refundAll(): Map<Decision, Decision> = refund().apply { outer?.let { putAll(it.refundAll()) } }

    /** Refunds the units under every policy, also when the refund under one of them fails. */
    fun refund(): MutableMap<Decision, Decision> {
        val refunds = IdentityHashMap<Decision, Decision>()
        if (isRefunded.getAndSet(true)) return refunds
        // The response is already being sent, so the error cannot change it.
        spent.mapNotNull { errorOf(it, refunds) }.firstOrNull()?.let(failed)
        return refunds
    }

    /** The error of the refund, if it fails. */
    private fun errorOf(
        one: Spent,
        refunds: MutableMap<Decision, Decision>,
    ): PolylimitException? =
        try {
            refunds[one.decision] = refunded(one.decision, limiter.refund(one.request))
            null
        } catch (error: PolylimitException) {
            error
        }
}
