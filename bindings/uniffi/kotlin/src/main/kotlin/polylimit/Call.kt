package polylimit

import java.lang.ref.Reference
import java.nio.ByteBuffer
import java.time.Duration

/** An operation of a limiter with its arguments. [T] is what native code answers it with. */
internal class Call<T>(
    private val operation: Int,
    private val request: Request? = null,
    private val requests: List<Request>? = null,
    private val timeout: Duration? = null,
    private val arguments: (CallBuffer.() -> Unit)? = null,
    private val hold: ((HeldReservation) -> T)? = null,
    private val report: FfiConverterRustBuffer<T>? = null,
) {
    /** Whether a caller that gives up while it waits ends the call: what ends a reservation goes on. */
    val isCancellable: Boolean get() = operation !in DirectCalls.COMMIT..DirectCalls.END

    /** Writes the call. With a queue, the queue has the answer under the tag. */
    fun write(
        buffer: CallBuffer,
        waits: Int,
        queue: Long = 0,
        tag: Long = 0,
    ) {
        val name = if (operation == DirectCalls.BLOCK) "time" else "timeout"
        buffer.begin(operation, waits, queue, tag, timeout?.let { microsecondsOf(name, it) } ?: 0)
        if (request != null) buffer.putRequest(request)
        if (requests != null) {
            buffer.putInt(requests.size)
            requests.forEach(buffer::putRequest)
        }
        arguments?.invoke(buffer)
    }

    @Suppress("UNCHECKED_CAST")
    fun read(buffer: CallBuffer): T {
        val answer = buffer.answer()
        if (report != null) return report.read(ByteBuffer.wrap(answer as ByteArray))
        return if (hold == null) answer as T else hold(answer as HeldReservation)
    }

    /** Gives back what the answer says that was spent or set aside, if a caller that gave up does not take it. */
    fun giveBack(
        answer: T,
        target: CallTarget,
    ) {
        if (answer is AutoCloseable) answer.close()
        if (answer is RequestDecision) answer.cancelAll(target)
        if (answer is RequestReservation) answer.cancelAll(requests.orEmpty(), target)
        if (operation != DirectCalls.ACQUIRE || answer !is Decision || !answer.allowed || answer.isOutage) return
        // What the store cannot refund stays spent, as with any refund.
        target.finish(refund(request ?: return))
    }

    companion object {
        fun check(request: Request) = Call<Decision>(DirectCalls.CHECK, request)

        fun peek(request: Request) = Call<Decision>(DirectCalls.PEEK, request)

        fun take(request: Request) = Call<Usage>(DirectCalls.TAKE, request)

        fun charge(request: Request) = Call<Usage>(DirectCalls.CHARGE, request)

        fun refund(request: Request) = Call<Usage>(DirectCalls.REFUND, request)

        fun reset(request: Request) = Call<Usage>(DirectCalls.RESET, request)

        fun block(
            request: Request,
            time: Duration,
        ) = Call<Usage>(DirectCalls.BLOCK, request, timeout = time)

        fun decide(
            attributes: RequestAttributes,
            id: String?,
            ttl: Duration?,
            remember: Duration?,
        ) = Call<RequestDecision>(
            DirectCalls.DECIDE_BY_ATTRIBUTES,
            arguments = { putAttributes(attributes).putTerms(id, ttl, remember) },
        )

        fun setEntry(
            item: String,
            value: String,
        ) = Call<ConfigurationStatus>(DirectCalls.SET_ENTRY, arguments = { putText(item).putText(value) })

        fun deleteEntry(item: String) = Call<ConfigurationStatus>(DirectCalls.DELETE_ENTRY, arguments = { putText(item) })

        fun publish(
            document: String,
            options: PublishOptions,
        ) = Call<ConfigurationStatus>(
            DirectCalls.PUBLISH,
            arguments = {
                val expected = options.expectedVersion
                putText(document).put(expected != null).putLong(expected ?: 0).putText(options.by).putText(options.why)
            },
        )

        fun waitForVersion(
            version: Long,
            timeout: Duration,
        ) = Call<ConfigurationStatus>(DirectCalls.WAIT_FOR_VERSION, timeout = timeout, arguments = { putLong(version) })

        fun matching(attributes: RequestAttributes) =
            Call<List<PolicyMatch>>(DirectCalls.MATCHING, arguments = { putAttributes(attributes) })

        fun setDocument(text: String) = Call<ConfigurationStatus>(DirectCalls.SET_DOCUMENT, arguments = { putText(text) })

        fun acquire(
            request: Request,
            timeout: Duration,
        ) = Call<Decision>(DirectCalls.ACQUIRE, request, timeout = timeout)

        /** [hold] makes the reservation of its handle. */
        fun <R> reserve(
            request: Request,
            options: ReserveOptions,
            hold: (HeldReservation) -> R,
        ) = Call(DirectCalls.RESERVE, request, timeout = options.timeout, arguments = { putOptions(options) }, hold = hold)

        fun commit(
            request: Request,
            reservation: ReservationName,
            spent: Long?,
        ) = Call<Usage>(DirectCalls.COMMIT, request.copy(cost = spent), arguments = { putName(reservation) })

        fun cancel(
            request: Request,
            reservation: ReservationName,
        ) = Call<Usage>(DirectCalls.CANCEL_RESERVATION, request, arguments = { putName(reservation) })

        fun renew(
            request: Request,
            reservation: ReservationName,
            ttl: Duration,
        ) = Call<Usage>(DirectCalls.RENEW, request, arguments = { putName(reservation).putLong(microsecondsOf("ttl", ttl)) })

        /** Answered with a usage, or with Unit when there was nothing to end. */
        fun end(
            request: Request,
            reservation: ReservationName,
            cancels: Boolean = false,
        ) = Call<Any>(DirectCalls.END, request, arguments = { putName(reservation).put(cancels) })

        fun checkMany(requests: List<Request>) = Call<List<CheckResult>>(DirectCalls.CHECK_MANY, requests = requests)

        fun checkTogether(requests: List<Request>) = Call<List<CheckResult>>(DirectCalls.CHECK_TOGETHER, requests = requests)

        fun peekTogether(requests: List<Request>) = Call<List<CheckResult>>(DirectCalls.PEEK_TOGETHER, requests = requests)

        fun reserveTogether(
            requests: List<Request>,
            id: String?,
            ttl: Duration?,
            remember: Duration?,
        ) = Call<RequestReservation>(
            DirectCalls.RESERVE_TOGETHER,
            requests = requests,
            arguments = { putTerms(id, ttl, remember) },
        )

        fun ready(timeout: Duration) = Call<Unit>(DirectCalls.READY, timeout = timeout)

        fun doctor() = Call<List<Finding>>(DirectCalls.DOCTOR)

        fun list(options: ListOptions) =
            Call(DirectCalls.LIST, arguments = { options.write(this).putRecord() }, report = FfiConverterTypeKeyPage)

        fun scanTop(
            number: Long,
            options: ListOptions,
        ) = Call(
            DirectCalls.SCAN_TOP,
            arguments = { options.write(putLong(number)).putRecord() },
            report = FfiConverterTypeKeyPage,
        )

        fun resetListed(options: ListOptions) =
            Call(DirectCalls.RESET_LISTED, arguments = { options.write(this).putRecord() }, report = FfiConverterTypeResetPage)

        fun explain(request: Request) =
            Call(DirectCalls.EXPLAIN, request, arguments = { putRecord() }, report = FfiConverterTypeKeyExplanation)

        fun explainRequest(attributes: RequestAttributes) =
            Call(
                DirectCalls.EXPLAIN_REQUEST,
                arguments = { putAttributes(attributes).putRecord() },
                report = FfiConverterTypeRequestExplanation,
            )
    }
}

/** The limiter that calls are made to: all of its classes share it, and it keeps the native limiter and the listener alive. */
internal class CallTarget(
    val native: NativeLimiter,
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

    /** The configuration's status; null for a limiter without one. */
    fun configuration(): ConfigurationStatus? =
        CallBuffer.use { buffer ->
            buffer.begin(DirectCalls.CONFIGURATION)
            perform(buffer)
            if (buffer.hasMore()) buffer.answer() as ConfigurationStatus else null
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

    /** Makes a call for whose answer no caller waits. What the store cannot end then, ends at its time. */
    fun <T : Any> finish(call: Call<T>) {
        runCatching { tryAnswer(call) ?: submit(call, IgnoredCall(this, call)) }
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
