package polylimit

import kotlinx.coroutines.CancellableContinuation
import kotlinx.coroutines.Dispatchers
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Executor
import java.util.concurrent.ForkJoinPool
import kotlin.coroutines.ContinuationInterceptor
import kotlin.coroutines.resumeWithException

/** What [Completions] hand an answer to. */
internal interface Waiting {
    /** The number by which [Completions] know it. */
    var tag: Long

    /** Reads the answer on the thread of [Completions], which runs no code of the program. */
    fun receiveFrom(buffer: CallBuffer)
}

/** A call whose answer is not known yet. */
internal abstract class WaitingCall<T : Any>(
    private val target: CallTarget,
    private val call: Call<T>,
) : Waiting {
    @Volatile override var tag = 0L

    /** Takes the answer or the error on the thread of [Completions], which runs no code of the program. */
    abstract fun receive(answer: Result<T>)

    override fun receiveFrom(buffer: CallBuffer) = receive(runCatching { call.read(buffer) })

    /** Gives the call up: an acquire or a reserve leaves the queue, and what was spent or set aside for it is given back. */
    fun cancel() {
        if (call.isCancellable) Completions.cancel(tag)
    }

    /** Gives back what was spent or set aside for a caller that does not take the answer. */
    fun giveBack(answer: T) = call.giveBack(answer, target)
}

/** No caller waits for the answer. */
internal class IgnoredCall<T : Any>(
    target: CallTarget,
    call: Call<T>,
) : WaitingCall<T>(target, call) {
    override fun receive(answer: Result<T>) = Unit
}

/** A thread waits for the answer, and may be interrupted. */
internal class BlockedCall<T : Any>(
    target: CallTarget,
    call: Call<T>,
) : WaitingCall<T>(target, call) {
    val answer = CompletableFuture<Result<T>>()

    override fun receive(answer: Result<T>) {
        if (!this.answer.complete(answer)) answer.onSuccess(::giveBack)
    }

    fun giveUp() {
        // From here on, an answer is given back when it is received.
        if (answer.cancel(false)) cancel() else answer.getNow(null)?.onSuccess(::giveBack)
    }
}

/** A coroutine is suspended until the answer is there. */
internal class SuspendedCall<T : Any>(
    target: CallTarget,
    call: Call<T>,
    private val continuation: CancellableContinuation<T>,
) : WaitingCall<T>(target, call) {
    override fun receive(answer: Result<T>) {
        val interceptor = continuation.context[ContinuationInterceptor]
        // Without a dispatcher the coroutine would continue on this thread.
        if (interceptor == null || interceptor === Dispatchers.Unconfined) {
            THREADS.execute { resume(answer) }
        } else {
            resume(answer)
        }
    }

    private fun resume(answer: Result<T>) {
        answer
            .onSuccess { value -> continuation.resume(value) { _, lost, _ -> giveBack(lost) } }
            .onFailure(continuation::resumeWithException)
    }
}

/** A future that leaves the queue when it is cancelled. */
internal class AnswerFuture<T : Any>(
    target: CallTarget,
    call: Call<T>,
) : CompletableFuture<T>() {
    val waiting =
        object : WaitingCall<T>(target, call) {
            override fun receive(answer: Result<T>) {
                // What depends on the future is code of the program.
                THREADS.execute {
                    answer
                        .onSuccess { value -> if (!complete(value)) giveBack(value) }
                        .onFailure(::completeExceptionally)
                }
            }
        }

    override fun cancel(mayInterruptIfRunning: Boolean): Boolean {
        val wasPending = !isDone
        val isCancelled = super.cancel(mayInterruptIfRunning)
        if (wasPending && isCancelled) waiting.cancel()
        return isCancelled
    }
}

/** Runs code of the program. The JDK owns its threads, so that none keeps the class loader of a web application. */
internal val THREADS: Executor =
    if (ForkJoinPool.getCommonPoolParallelism() > 0) ForkJoinPool.commonPool() else CompletableFuture<Unit>().defaultExecutor()
