package polylimit

import java.lang.ref.Cleaner
import java.lang.ref.Reference

/**
 * Units that are set aside for their holder, made by [Limiter.reserve]. While it is held, the limiter renews it in the background.
 *
 * It belongs into a scope: `use { }`, or `try (...)` in Java. A scope that is left without a commit cancels the reservation, or
 * commits what was reserved where [ReserveOptions.commitAtEnd] is set. A `use { }` that is left by an exception cancels it in any
 * case. A reservation that nothing refers to any more is ended when the garbage collector finds it.
 *
 * May be used by any number of threads.
 */
public class Reservation internal constructor(
    private val target: CallTarget,
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

    /** The id, by which another process can end the reservation: see [Limiter.commit]. */
    public val id: String get() = held.name.id.decodeToString()

    /**
     * Whether the reservation is known to have ended without its holder: a renewal did not find it, or its time has passed without a
     * renewal. Its units may be admitted to others meanwhile. False once it was committed or cancelled.
     */
    public val isLost: Boolean get() = whileReachable { held.isLost }

    /**
     * Ends the reservation and charges what was spent, in units from 0 to 10^12: less than was reserved, or more; null is what was
     * reserved. When the reservation had ended before, nothing is charged, and [Usage.found] is false.
     */
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun commit(spent: Long? = null): Usage = whileReachable { target.answer(Call.commit(request, held.name, spent)) }

    /** Ends the reservation and spends nothing. */
    @Throws(PolylimitException::class)
    public fun cancel(): Usage = whileReachable { target.answer(Call.cancel(request, held.name)) }

    /**
     * Ends a reservation that was neither committed nor cancelled: cancels it, or commits what was reserved where
     * [ReserveOptions.commitAtEnd] is set. May be called again.
     */
    @Throws(PolylimitException::class)
    override fun close(): Unit = end(cancels = false)

    /** Runs the block, and ends the reservation as [close] does; an exception in the block cancels it. */
    public inline fun <T> use(block: (Reservation) -> T): T {
        val result =
            try {
                block(this)
            } catch (failure: Throwable) {
                runCatching { end(cancels = true) }.onFailure(failure::addSuppressed)
                throw failure
            }
        close()
        return result
    }

    @PublishedApi
    internal fun end(cancels: Boolean) {
        if (allowed) whileReachable { target.answer(Call.end(request, held.name, cancels)) }
    }

    /** The garbage collector releases the handle of a reservation that is not reachable. */
    private inline fun <T> whileReachable(call: () -> T): T =
        try {
            call()
        } finally {
            Reference.reachabilityFence(this)
        }
}

/** Releases the handles of reservations that are not reachable any more, on a thread of its own from the first reservation on. */
internal val CLEANER: Cleaner by lazy { Cleaner.create() }
