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

/** What a request has spent in one filter, so that it can be given back: once, whatever the reasons. */
internal class Spending(
    private val limiter: Limiter,
    private val spent: List<Spent>,
    /** What was spent further out; null when that is nothing. */
    private val before: Spending?,
    /** Hears of an error of giving back. */
    private val failed: (PolylimitException) -> Unit,
) {
    private val isGiven = AtomicBoolean()

    /** The decision by which the same key was charged under the same policy already, here or further out; null if it was not. */
    fun decision(
        limiter: Limiter,
        request: Request,
    ): Decision? {
        val here = if (limiter === this.limiter && !isGiven.get()) spent.firstOrNull { it.isLike(request) } else null
        return here?.decision ?: before?.decision(limiter, request)
    }

    private fun Spent.isLike(other: Request) = request.policy == other.policy && request.key.contentEquals(other.key)

    /** This and all that was spent further out. Gives what the decisions say then, each by what it said before. */
    fun giveBack(): Map<Decision, Decision> = refund().apply { before?.let { putAll(it.giveBack()) } }

    /** Under every policy, also when it fails under one of them. */
    fun refund(): MutableMap<Decision, Decision> {
        val said = IdentityHashMap<Decision, Decision>()
        if (isGiven.getAndSet(true)) return said
        // The response is on its way: there is nobody else to tell.
        spent.mapNotNull { errorOf(it, said) }.firstOrNull()?.let(failed)
        return said
    }

    /** Why giving back fails, if it does. */
    private fun errorOf(
        one: Spent,
        said: MutableMap<Decision, Decision>,
    ): PolylimitException? =
        try {
            said[one.decision] = refunded(one.decision, limiter.refund(one.request))
            null
        } catch (error: PolylimitException) {
            error
        }
}
