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
 * common pool, as with the futures of the JDK. Every method fails with a [PolylimitException], as the method of [Limiter] does.
 */
public class AsyncLimiter internal constructor(
    private val target: CallTarget,
) {
    /** See [Limiter.admin]. */
    public fun admin(): AsyncAdmin = AsyncAdmin(this)

    /** See [Limiter.check]. */
    public suspend fun check(request: Request): Decision = await(Call.check(request))

    /** See [Limiter.check]. */
    public suspend fun check(
        key: String,
        policy: String? = null,
        cost: Long? = null,
        headroom: Int = 0,
        plan: String? = null,
    ): Decision = check(request(key, policy, cost, headroom, plan))

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

    /** See [Limiter.decide]. A coroutine that is cancelled gives back what was reserved for it. */
    public suspend fun decide(
        attributes: RequestAttributes,
        id: String? = null,
        ttl: Duration? = null,
        remember: Duration? = null,
    ): RequestDecision = await(Call.decide(attributes, id, ttl, remember))

    /** See [Limiter.acquire]. A coroutine that is cancelled leaves the queue, and what was spent for it is refunded. */
    public suspend fun acquire(
        request: Request,
        timeout: Duration,
    ): Decision = await(Call.acquire(request, timeout))

    /** See [Limiter.acquire]. */
    public suspend fun acquire(
        key: String,
        timeout: Duration,
        policy: String? = null,
        cost: Long? = null,
        headroom: Int = 0,
        plan: String? = null,
    ): Decision = acquire(request(key, policy, cost, headroom, plan), timeout)

    /**
     * See [Limiter.reserve]. A coroutine that is cancelled leaves the queue, and what was set aside for it is given back. With a
     * block in place of a handle: `reserve(request).use { reservation -> }`.
     */
    public suspend fun reserve(
        request: Request,
        options: ReserveOptions = ReserveOptions(),
    ): AsyncReservation = await(reserving(request, options))

    /** See [Limiter.reserve]. */
    public suspend fun reserve(
        key: String,
        policy: String? = null,
        cost: Long? = null,
        options: ReserveOptions = ReserveOptions(),
    ): AsyncReservation = reserve(request(key, policy, cost), options)

    /** See [Limiter.commit]. A coroutine that is cancelled meanwhile does not undo it. */
    public suspend fun commit(
        request: Request,
        id: String,
        spent: Long? = null,
    ): Usage = await(Call.commit(request, reservationNamed(id), spent))

    /** See [Limiter.cancel]. */
    public suspend fun cancel(
        request: Request,
        id: String,
    ): Usage = await(Call.cancel(request, reservationNamed(id)))

    /** See [Limiter.renew]. */
    public suspend fun renew(
        request: Request,
        id: String,
        ttl: Duration,
    ): Usage = await(Call.renew(request, reservationNamed(id), ttl))

    /** See [Limiter.checkMany]. */
    public suspend fun checkMany(requests: List<Request>): List<CheckResult> = await(Call.checkMany(requests))

    /** See [Limiter.checkTogether]. */
    public suspend fun checkTogether(requests: List<Request>): List<Decision> = await(Call.checkTogether(requests)).map { it.get() }

    /** See [Limiter.peekTogether]. */
    public suspend fun peekTogether(requests: List<Request>): List<Decision> = await(Call.peekTogether(requests)).map { it.get() }

    /** See [Limiter.reserveTogether]. A coroutine that is cancelled leaves no reservation behind. */
    public suspend fun reserveTogether(
        requests: List<Request>,
        id: String? = null,
        ttl: Duration? = null,
        remember: Duration? = null,
    ): RequestReservation = await(Call.reserveTogether(requests, id, ttl, remember))

    /** See [Limiter.ready]. */
    public suspend fun ready(timeout: Duration): Unit = await(Call.ready(timeout))

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

    /** [decide] for Java. Cancelling the future gives back what was reserved. */
    @JvmOverloads
    public fun decideFuture(
        attributes: RequestAttributes,
        id: String? = null,
        ttl: Duration? = null,
        remember: Duration? = null,
    ): CompletableFuture<RequestDecision> = future(Call.decide(attributes, id, ttl, remember))

    /** [acquire] for Java. Cancelling the future leaves the queue, and what was spent for it is refunded. */
    public fun acquireFuture(
        request: Request,
        timeout: Duration,
    ): CompletableFuture<Decision> = future(Call.acquire(request, timeout))

    /** [reserve] for Java. Cancelling the future leaves the queue, and what was set aside for it is given back. */
    @JvmOverloads
    public fun reserveFuture(
        request: Request,
        options: ReserveOptions = ReserveOptions(),
    ): CompletableFuture<AsyncReservation> = future(reserving(request, options))

    /** [commit] for Java. */
    @JvmOverloads
    public fun commitFuture(
        request: Request,
        id: String,
        spent: Long? = null,
    ): CompletableFuture<Usage> = future(Call.commit(request, reservationNamed(id), spent))

    /** [cancel] for Java. */
    public fun cancelFuture(
        request: Request,
        id: String,
    ): CompletableFuture<Usage> = future(Call.cancel(request, reservationNamed(id)))

    /** [renew] for Java. */
    public fun renewFuture(
        request: Request,
        id: String,
        ttl: Duration,
    ): CompletableFuture<Usage> = future(Call.renew(request, reservationNamed(id), ttl))

    /** [checkMany] for Java. */
    public fun checkManyFuture(requests: List<Request>): CompletableFuture<List<CheckResult>> = future(Call.checkMany(requests))

    /** [checkTogether] for Java. */
    public fun checkTogetherFuture(requests: List<Request>): CompletableFuture<List<Decision>> =
        future(Call.checkTogether(requests)).thenApply { results -> results.map { it.get() } }

    /** [peekTogether] for Java. */
    public fun peekTogetherFuture(requests: List<Request>): CompletableFuture<List<Decision>> =
        future(Call.peekTogether(requests)).thenApply { results -> results.map { it.get() } }

    /** [reserveTogether] for Java. Cancelling the future leaves no reservation behind. */
    @JvmOverloads
    public fun reserveTogetherFuture(
        requests: List<Request>,
        id: String? = null,
        ttl: Duration? = null,
        remember: Duration? = null,
    ): CompletableFuture<RequestReservation> = future(Call.reserveTogether(requests, id, ttl, remember))

    /** [ready] for Java. */
    public fun readyFuture(timeout: Duration): CompletableFuture<Void?> = future(Call.ready(timeout)).thenAccept {}

    internal suspend fun <T : Any> await(call: Call<T>): T =
        target.tryAnswer(call) ?: suspendCancellableCoroutine { continuation ->
            val waiting = SuspendedCall(target, call, continuation)
            runCatching { target.submit(call, waiting) }
                .onFailure(continuation::resumeWithException)
                .onSuccess { answer ->
                    if (answer == null) continuation.invokeOnCancellation { waiting.cancel() } else waiting.receive(Result.success(answer))
                }
        }

    internal fun <T : Any> future(call: Call<T>): CompletableFuture<T> {
        val future = AnswerFuture(target, call)
        runCatching { target.tryAnswer(call) ?: target.submit(call, future.waiting) }
            .onFailure(future::completeExceptionally)
            .onSuccess { answer -> if (answer != null) future.complete(answer) }
        return future
    }

    internal fun finish(call: Call<Any>): Unit = target.finish(call)

    private fun reserving(
        request: Request,
        options: ReserveOptions,
    ) = Call.reserve(request, options) { held -> AsyncReservation(this, request, held) }
}
