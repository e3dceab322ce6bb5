package polylimit

import kotlinx.coroutines.suspendCancellableCoroutine
import java.time.Duration
import java.util.concurrent.CompletableFuture
import kotlin.coroutines.resumeWithException

/**
 * Decides whether requests may proceed, without holding a thread. Made by [Limiter.asynchronous], with which it shares everything.
 *
 * A call that the limiter can answer without its store, or with a store in this process, does not suspend. A call that is
 * cancelled in [acquire] leaves the queue. The methods that end in `Future` are for Java; what depends on their futures runs on the
 * threads of `Dispatchers.Default`. Every method fails with a [PolylimitException], as the method of [Limiter] does.
 */
public class AsyncLimiter internal constructor(
    private val target: CallTarget,
) {
    /** See [Limiter.check]. */
    public suspend fun check(request: Request): Decision = await(Call.check(request))

    /** See [Limiter.check]. */
    public suspend fun check(
        key: String,
        policy: String? = null,
        cost: Long? = null,
    ): Decision = check(request(key, policy, cost))

    /** See [Limiter.peek]. */
    public suspend fun peek(request: Request): Decision = await(Call.peek(request))

    /** See [Limiter.take]. */
    public suspend fun take(request: Request): Usage = await(Call.take(request))

    /** See [Limiter.charge]. */
    public suspend fun charge(request: Request): Usage = await(Call.charge(request))

    /** See [Limiter.refund]. */
    public suspend fun refund(request: Request): Usage = await(Call.refund(request))

    /** See [Limiter.reset]. */
    public suspend fun reset(request: Request): Usage = await(Call.reset(request))

    /** See [Limiter.acquire]. A coroutine that is cancelled leaves the queue, and what was spent for it is refunded. */
    public suspend fun acquire(
        request: Request,
        timeout: Duration,
    ): Decision = await(Call.acquire(request, timeout))

    /** See [Limiter.checkMany]. */
    public suspend fun checkMany(requests: List<Request>): List<CheckResult> = await(Call.checkMany(requests))

    /** See [Limiter.checkTogether]. */
    public suspend fun checkTogether(requests: List<Request>): List<Decision> = await(Call.checkTogether(requests)).map { it.get() }

    /** See [Limiter.ready]. */
    public suspend fun ready(timeout: Duration): Unit = await(Call.ready(timeout))

    /** See [Limiter.doctor]. */
    public suspend fun doctor(): List<Finding> = await(Call.doctor())

    /** [check] for Java. */
    public fun checkFuture(request: Request): CompletableFuture<Decision> = future(Call.check(request))

    /** [peek] for Java. */
    public fun peekFuture(request: Request): CompletableFuture<Decision> = future(Call.peek(request))

    /** [take] for Java. */
    public fun takeFuture(request: Request): CompletableFuture<Usage> = future(Call.take(request))

    /** [charge] for Java. */
    public fun chargeFuture(request: Request): CompletableFuture<Usage> = future(Call.charge(request))

    /** [refund] for Java. */
    public fun refundFuture(request: Request): CompletableFuture<Usage> = future(Call.refund(request))

    /** [reset] for Java. */
    public fun resetFuture(request: Request): CompletableFuture<Usage> = future(Call.reset(request))

    /** [acquire] for Java. Cancelling the future leaves the queue, and what was spent for it is refunded. */
    public fun acquireFuture(
        request: Request,
        timeout: Duration,
    ): CompletableFuture<Decision> = future(Call.acquire(request, timeout))

    /** [checkMany] for Java. */
    public fun checkManyFuture(requests: List<Request>): CompletableFuture<List<CheckResult>> = future(Call.checkMany(requests))

    /** [checkTogether] for Java. */
    public fun checkTogetherFuture(requests: List<Request>): CompletableFuture<List<Decision>> =
        future(Call.checkTogether(requests)).thenApply { results -> results.map { it.get() } }

    /** [ready] for Java. */
    public fun readyFuture(timeout: Duration): CompletableFuture<Void?> = future(Call.ready(timeout)).thenAccept {}

    /** [doctor] for Java. */
    public fun doctorFuture(): CompletableFuture<List<Finding>> = future(Call.doctor())

    private suspend fun <T : Any> await(call: Call<T>): T =
        target.tryAnswer(call) ?: suspendCancellableCoroutine { continuation ->
            val waiting = SuspendedCall(target, call, continuation)
            runCatching { target.submit(call, waiting) }
                .onFailure(continuation::resumeWithException)
                .onSuccess { answer ->
                    if (answer == null) continuation.invokeOnCancellation { waiting.cancel() } else waiting.receive(Result.success(answer))
                }
        }

    private fun <T : Any> future(call: Call<T>): CompletableFuture<T> {
        val future = AnswerFuture(target, call)
        runCatching { target.tryAnswer(call) ?: target.submit(call, future.waiting) }
            .onFailure(future::completeExceptionally)
            .onSuccess { answer -> if (answer != null) future.complete(answer) }
        return future
    }
}
