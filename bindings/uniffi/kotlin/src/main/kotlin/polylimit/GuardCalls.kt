package polylimit

import java.util.concurrent.CompletableFuture

/** A call of a guard that waits for the store without a thread, and goes on as often as native code has something to wait for. */
internal abstract class GuardCall<T : Any>(
    private val guard: Guard,
    private val check: GuardCheck,
) : Waiting {
    @Volatile override var tag = 0L

    private val future = CompletableFuture<T>()

    /** Reads the answer to the whole call, while [check] is locked. */
    abstract fun read(buffer: CallBuffer): T

    /** Takes the addresses of checks, when the call waits for the first time. */
    open fun submitted(buffer: CallBuffer) = Unit

    /** The caller does not take the answer. */
    open fun giveBack(answer: T) = Unit

    /** Begins the operation, whose arguments may be written twice. */
    fun start(
        operation: Int,
        arguments: (CallBuffer) -> Any,
    ): CompletableFuture<T> {
        advance(operation, arguments)
        return future
    }

    override fun receiveFrom(buffer: CallBuffer) {
        val received = runCatching { buffer.answer() }
        // What depends on the future is code of the program.
        THREADS.execute {
            received.onFailure(future::completeExceptionally).onSuccess { advance(DirectCalls.CONTINUE) {} }
        }
    }

    private fun advance(
        operation: Int,
        arguments: (CallBuffer) -> Any,
    ) {
        // An answer that comes at once waits here until the addresses are known.
        runCatching { synchronized(check) { answer(operation, arguments) } }
            .onFailure(future::completeExceptionally)
            .onSuccess { answer -> if (answer != null && !future.complete(answer)) giveBack(answer) }
    }

    /** The answer, or null while the call is submitted. */
    private fun answer(
        operation: Int,
        arguments: (CallBuffer) -> Any,
    ): T? =
        CallBuffer.use { buffer ->
            arguments(buffer.begin(operation, DirectCalls.TRY))
            when (guard.perform(buffer, check.address)) {
                DirectCalls.HAS_TO_WAIT -> submit(buffer, operation, arguments)
                // Some of its calls are made.
                DirectCalls.PENDING -> {
                    submitted(buffer)
                    submit(buffer, DirectCalls.CONTINUE) {}
                }
                else -> read(buffer)
            }
        }

    private fun submit(
        buffer: CallBuffer,
        operation: Int,
        arguments: (CallBuffer) -> Any,
    ): T? {
        val tag = Completions.add(this)
        arguments(buffer.begin(operation, DirectCalls.SUBMIT, Completions.queue, tag))
        if (guard.perform(buffer, check.address) == DirectCalls.PENDING) {
            submitted(buffer)
            return null
        }
        Completions.remove(tag)
        return read(buffer)
    }
}
