package polylimit.servlet

import polylimit.Limiter
import polylimit.PolylimitException
import polylimit.Request
import java.util.concurrent.atomic.AtomicBoolean

/** What a request has spent in one filter, so that it can be given back: once, whatever the reasons. */
internal class Spending(
    private val limiter: Limiter,
    private val requests: List<Request>,
    /** What was spent further out; null when that is nothing. */
    private val before: Spending?,
    /** Hears of an error of giving back. */
    private val failed: (PolylimitException) -> Unit,
) {
    private val isGiven = AtomicBoolean()

    /** This and all that was spent further out. */
    fun giveBack() {
        refund()
        before?.giveBack()
    }

    /** Under every policy, also when it fails under one of them. */
    fun refund() {
        if (isGiven.getAndSet(true)) return
        // The response is on its way: there is nobody else to tell.
        requests.mapNotNull(::errorOf).firstOrNull()?.let(failed)
    }

    /** Why giving back fails, if it does. */
    private fun errorOf(request: Request): PolylimitException? =
        try {
            limiter.refund(request)
            null
        } catch (error: PolylimitException) {
            error
        }
}
