package polylimit

import java.lang.ref.Reference
import java.time.Duration

/** An operation of a limiter with its arguments. [T] is what native code answers it with. */
internal class Call<T>(
    private val operation: Int,
    private val request: Request? = null,
    private val requests: List<Request>? = null,
    private val timeout: Duration? = null,
) {
    /** Writes the call. With a queue, the queue has the answer under the tag. */
    fun write(
        buffer: CallBuffer,
        waits: Int,
        queue: Long = 0,
        tag: Long = 0,
    ) {
        buffer.begin(operation, waits, queue, tag, timeout?.let(::microsecondsOf) ?: 0)
        if (request != null) buffer.putRequest(request)
        if (requests != null) {
            buffer.putInt(requests.size)
            requests.forEach(buffer::putRequest)
        }
    }

    @Suppress("UNCHECKED_CAST")
    fun read(buffer: CallBuffer): T = buffer.answer() as T

    /** The refund of what the answer says that was spent, if a caller that gave up does not take it. */
    fun refundOf(answer: T): Call<Usage>? {
        val isSpent = operation == DirectCalls.ACQUIRE && answer is Decision && answer.allowed && !answer.isOutage
        return if (isSpent) Call(DirectCalls.REFUND, request) else null
    }

    companion object {
        fun check(request: Request) = Call<Decision>(DirectCalls.CHECK, request)

        fun peek(request: Request) = Call<Decision>(DirectCalls.PEEK, request)

        fun take(request: Request) = Call<Usage>(DirectCalls.TAKE, request)

        fun charge(request: Request) = Call<Usage>(DirectCalls.CHARGE, request)

        fun refund(request: Request) = Call<Usage>(DirectCalls.REFUND, request)

        fun reset(request: Request) = Call<Usage>(DirectCalls.RESET, request)

        fun acquire(
            request: Request,
            timeout: Duration,
        ) = Call<Decision>(DirectCalls.ACQUIRE, request, timeout = timeout)

        fun checkMany(requests: List<Request>) = Call<List<CheckResult>>(DirectCalls.CHECK_MANY, requests = requests)

        fun checkTogether(requests: List<Request>) = Call<List<CheckResult>>(DirectCalls.CHECK_TOGETHER, requests = requests)

        fun ready(timeout: Duration) = Call<Unit>(DirectCalls.READY, timeout = timeout)

        fun doctor() = Call<List<Finding>>(DirectCalls.DOCTOR)
    }
}

/** The limiter that calls are made to: both of its classes share it, and it keeps the native limiter and the listener alive. */
internal class CallTarget(
    private val native: NativeLimiter,
    private val listener: Listener,
) {
    private val address = native.address()

    /** The answer to a call that waits on this thread. */
    fun <T> answer(call: Call<T>): T =
        CallBuffer.use { buffer ->
            call.write(buffer, DirectCalls.TRY or DirectCalls.WAIT)
            perform(buffer)
            call.read(buffer)
        }

    /** The answer to a call that need not wait; null if it has to, and nothing was done. */
    fun <T> tryAnswer(call: Call<T>): T? =
        CallBuffer.use { buffer ->
            call.write(buffer, DirectCalls.TRY)
            if (perform(buffer)) call.read(buffer) else null
        }

    /** Submits a call that has to wait. Returns the answer if it is known after all; otherwise the waiting call receives it. */
    fun <T : Any> submit(
        call: Call<T>,
        waiting: WaitingCall<T>,
    ): T? {
        val tag = Completions.add(waiting)
        return CallBuffer.use { buffer ->
            call.write(buffer, DirectCalls.SUBMIT, Completions.queue, tag)
            if (!perform(buffer)) return null
            Completions.remove(tag)
            call.read(buffer)
        }
    }

    /** The answer to a call during which this thread can be interrupted. Then the call is given up. */
    fun <T : Any> answerInterruptibly(call: Call<T>): T {
        val waiting = BlockedCall(this, call)
        submit(call, waiting)?.let { return it }
        try {
            return waiting.answer.get().getOrThrow()
        } catch (interruption: InterruptedException) {
            waiting.giveUp()
            throw interruption
        }
    }

    private fun perform(buffer: CallBuffer): Boolean =
        try {
            buffer.perform(address)
        } finally {
            // Its native object must not be freed before.
            Reference.reachabilityFence(this)
        }
}
