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

    /** See [Limiter.block]. */
    public suspend fun block(
        request: Request,
        time: Duration,
    ): Usage = await(Call.block(request, time))

    /** See [Limiter.unblock]. */
    public suspend fun unblock(request: Request): Usage = block(request, Duration.ZERO)

    /** See [Limiter.decide]. A coroutine that is cancelled gives back what was reserved for it. */
    public suspend fun decide(
        attributes: RequestAttributes,
        id: String? = null,
        ttl: Duration? = null,
    ): RequestDecision = await(Call.decide(attributes, id, ttl))

    /** See [Limiter.setEntry]. */
    public suspend fun setEntry(
        item: String,
        value: String,
    ): ConfigurationStatus = await(Call.setEntry(item, value))

    /** See [Limiter.setEntry]. */
    public suspend fun setEntry(
        item: String,
        value: Map<String, String>,
    ): ConfigurationStatus = setEntry(item, entryValue(value))

    /** See [Limiter.deleteEntry]. */
    public suspend fun deleteEntry(item: String): ConfigurationStatus = await(Call.deleteEntry(item))

    /** See [Limiter.publish]. */
    public suspend fun publish(
        document: String,
        options: PublishOptions = PublishOptions(),
    ): ConfigurationStatus = await(Call.publish(document, options))

    /** See [Limiter.waitForVersion]. */
    public suspend fun waitForVersion(
        version: Long,
        timeout: Duration,
    ): ConfigurationStatus = await(Call.waitForVersion(version, timeout))

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

    /** See [Limiter.ready]. */
    public suspend fun ready(timeout: Duration): Unit = await(Call.ready(timeout))

    /** See [Limiter.doctor]. */
    public suspend fun doctor(): List<Finding> = await(Call.doctor())

    /** See [Limiter.list]. */
    public suspend fun list(options: ListOptions = ListOptions()): KeyPage = await(Call.list(options))

    /** See [Limiter.scanTop]. */
    public suspend fun scanTop(
        number: Long,
        options: ListOptions = ListOptions(),
    ): KeyPage = await(Call.scanTop(number, options))

    /** See [Limiter.resetListed]. A coroutine that is cancelled may have reset some of the keys. */
    public suspend fun resetListed(options: ListOptions = ListOptions()): ResetPage = await(Call.resetListed(options))

    /** See [Limiter.explain]. */
    public suspend fun explain(request: Request): KeyExplanation = await(Call.explain(request))

    /** See [Limiter.explainRequest]. */
    public suspend fun explainRequest(attributes: RequestAttributes): RequestExplanation = await(Call.explainRequest(attributes))

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

    /** [block] for Java. */
    public fun blockFuture(
        request: Request,
        time: Duration,
    ): CompletableFuture<Usage> = future(Call.block(request, time))

    /** [unblock] for Java. */
    public fun unblockFuture(request: Request): CompletableFuture<Usage> = blockFuture(request, Duration.ZERO)

    /** [decide] for Java. Cancelling the future gives back what was reserved. */
    @JvmOverloads
    public fun decideFuture(
        attributes: RequestAttributes,
        id: String? = null,
        ttl: Duration? = null,
    ): CompletableFuture<RequestDecision> = future(Call.decide(attributes, id, ttl))

    /** [setEntry] for Java. */
    public fun setEntryFuture(
        item: String,
        value: String,
    ): CompletableFuture<ConfigurationStatus> = future(Call.setEntry(item, value))

    /** [deleteEntry] for Java. */
    public fun deleteEntryFuture(item: String): CompletableFuture<ConfigurationStatus> = future(Call.deleteEntry(item))

    /** [publish] for Java. */
    @JvmOverloads
    public fun publishFuture(
        document: String,
        options: PublishOptions = PublishOptions(),
    ): CompletableFuture<ConfigurationStatus> = future(Call.publish(document, options))

    /** [waitForVersion] for Java. */
    public fun waitForVersionFuture(
        version: Long,
        timeout: Duration,
    ): CompletableFuture<ConfigurationStatus> = future(Call.waitForVersion(version, timeout))

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

    /** [ready] for Java. */
    public fun readyFuture(timeout: Duration): CompletableFuture<Void?> = future(Call.ready(timeout)).thenAccept {}

    /** [doctor] for Java. */
    public fun doctorFuture(): CompletableFuture<List<Finding>> = future(Call.doctor())

    /** [list] for Java. */
    @JvmOverloads
    public fun listFuture(options: ListOptions = ListOptions()): CompletableFuture<KeyPage> = future(Call.list(options))

    /** [scanTop] for Java. */
    @JvmOverloads
    public fun scanTopFuture(
        number: Long,
        options: ListOptions = ListOptions(),
    ): CompletableFuture<KeyPage> = future(Call.scanTop(number, options))

    /** [resetListed] for Java. Cancelling the future may leave some of the keys reset. */
    @JvmOverloads
    public fun resetListedFuture(options: ListOptions = ListOptions()): CompletableFuture<ResetPage> = future(Call.resetListed(options))

    /** [explain] for Java. */
    public fun explainFuture(request: Request): CompletableFuture<KeyExplanation> = future(Call.explain(request))

    /** [explainRequest] for Java. */
    public fun explainRequestFuture(attributes: RequestAttributes): CompletableFuture<RequestExplanation> =
        future(Call.explainRequest(attributes))

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
