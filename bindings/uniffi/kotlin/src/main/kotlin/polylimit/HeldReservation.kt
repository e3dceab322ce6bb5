package polylimit

import java.util.concurrent.atomic.AtomicBoolean

/** The id of a reservation, and its native handle: 0 without one. */
internal class ReservationName(
    val id: ByteArray,
    val handle: Long = 0,
)

internal fun reservationNamed(id: String) = ReservationName(id.encodeToByteArray())

internal fun CallBuffer.putName(name: ReservationName): CallBuffer = putLong(name.handle).putBytes(name.id)

/** The answer to a reserve. Its native handle is released once. */
internal class HeldReservation(
    private val handle: Long,
    id: ByteArray,
    val decision: Decision,
) {
    private val isReleased = AtomicBoolean(handle == 0L)

    val name = ReservationName(id, handle)

    val isLost: Boolean
        get() =
            handle != 0L &&
                CallBuffer.use { buffer ->
                    buffer.begin(DirectCalls.IS_LOST).perform(handle)
                    buffer.byte() != 0
                }

    /** Frees the handle, which no call uses any more. A reservation that was not ended ends in the background. */
    fun release() {
        if (!isReleased.compareAndSet(false, true)) return
        CallBuffer.use { buffer -> buffer.begin(DirectCalls.RELEASE_RESERVATION).perform(handle) }
    }
}
