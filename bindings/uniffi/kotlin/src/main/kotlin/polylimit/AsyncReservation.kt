package polylimit

import java.lang.ref.Reference
import java.util.concurrent.CompletableFuture

/**
 * Units that are set aside for their holder, made by [AsyncLimiter.reserve]; as [Reservation], and holds no thread.
 *
 * Its [use] suspends until the reservation has ended; an exception or a cancellation of the coroutine cancels it. [close], for
 * `try (...)` in Java, does not wait: it ends the reservation in the background.
 */
public class AsyncReservation internal constructor(
    private val limiter: AsyncLimiter,
    private val request: Request,
    private val held: HeldReservation,
) : AutoCloseable {
    init {
        if (allowed) CLEANER.register(this, held::release)
    }

    /** Whether every quota has admitted the request, so that its units are set aside. */
    public val allowed: Boolean get() = held.decision.allowed

    /** The decision on the request. */
    public val decision: Decision get() = held.decision

    /** The id, by which another process can end the reservation: see [AsyncLimiter.commit]. */
    public val id: String get() = held.name.id.decodeToString()

    /** See [Reservation.isLost]. */
    public val isLost: Boolean get() = whileReachable { held.isLost }

    /** See [Reservation.commit]. A coroutine that is cancelled meanwhile does not undo it. */
    public suspend fun commit(spent: Long? = null): Usage = whileReachable { limiter.await(Call.commit(request, held.name, spent)) }

    /** See [Reservation.cancel]. */
    public suspend fun cancel(): Usage = whileReachable { limiter.await(Call.cancel(request, held.name)) }

    /** Ends a reservation that was neither committed nor cancelled, as [Reservation.close] does. May be called again. */
    public suspend fun end() {
        whileReachable { limiter.await(Call.end(request, held.name)) }
    }

    /** [commit] for Java. */
    @JvmOverloads
    public fun commitFuture(spent: Long? = null): CompletableFuture<Usage> =
        whileReachable { limiter.future(Call.commit(request, held.name, spent)) }

    /** [cancel] for Java. */
    public fun cancelFuture(): CompletableFuture<Usage> = whileReachable { limiter.future(Call.cancel(request, held.name)) }

    /** [end] for Java. */
    public fun endFuture(): CompletableFuture<Void?> =
        whileReachable { limiter.future(Call.end(request, held.name)).thenAccept {} }

    /** Ends the reservation in the background, as [end] does. May be called again. */
    override fun close() {
        whileReachable { limiter.finish(Call.end(request, held.name)) }
    }

    /** Runs the block, and ends the reservation as [end] does; an exception in the block cancels it in the background. */
    public suspend inline fun <T> use(block: (AsyncReservation) -> T): T {
        val result =
            try {
                block(this)
            } catch (failure: Throwable) {
                abandon()
                throw failure
            }
        end()
        return result
    }

    @PublishedApi
    internal fun abandon() {
        if (allowed) whileReachable { limiter.finish(Call.end(request, held.name, cancels = true)) }
    }

    /** The garbage collector releases the handle of a reservation that is not reachable. */
    private inline fun <T> whileReachable(call: () -> T): T =
        try {
            call()
        } finally {
            Reference.reachabilityFence(this)
        }
}
