package polylimit

import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.future.future
import java.time.Duration
import java.util.concurrent.CompletableFuture

/**
 * Decides whether requests may proceed, without holding a thread. Made by [Limiter.asynchronous].
 *
 * A cancelled call of [acquire] leaves the queue. The methods that end in `Future` are for Java.
 */
public class AsyncLimiter internal constructor(
    private val native: NativeAsyncLimiter,
    // This reference keeps the listener alive.
    @Suppress("unused") private val listener: Listener,
) {
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    /** Decides, and spends the cost from every quota of the policy when all admit it. */
    public suspend fun check(request: Request): Decision = native.check(request)

    /** Decides, and spends the cost from every quota of the policy when all admit it. */
    public suspend fun check(
        key: String,
        policy: String? = null,
        cost: Long? = null,
    ): Decision = check(request(key, policy, cost))

    /** The decision that a check would give now; changes no state. */
    public suspend fun peek(request: Request): Decision = native.peek(request)

    /** Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took. */
    public suspend fun take(request: Request): Usage = native.take(request)

    /** Spends the cost even if it exceeds what remains, for a cost that is known only afterwards. */
    public suspend fun charge(request: Request): Usage = native.charge(request)

    /** Returns units, at most those that are used, the newest first. */
    public suspend fun refund(request: Request): Usage = native.refund(request)

    /** Removes the state of the key under its policy; the cost does not matter. */
    public suspend fun reset(request: Request): Usage = native.reset(request)

    /**
     * Waits until the request is admitted. Says at once that the timeout cannot be met: then the decision is a denial, and
     * nothing was spent.
     */
    public suspend fun acquire(
        request: Request,
        timeout: Duration,
    ): Decision = native.acquire(request, timeout)

    /** Checks several requests in one call, of one or more policies. Each is decided on its own, in order. */
    public suspend fun checkMany(requests: List<Request>): List<CheckResult> = native.checkMany(requests)

    /** Waits until the store answers, at most for that long. */
    public suspend fun ready(timeout: Duration): Unit = native.ready(timeout)

    /** Examines the store for an operator. */
    public suspend fun doctor(): List<Finding> = native.doctor()

    /** [check] for Java. */
    public fun checkFuture(request: Request): CompletableFuture<Decision> = scope.future { check(request) }

    /** [acquire] for Java. Cancelling the future leaves the queue. */
    public fun acquireFuture(
        request: Request,
        timeout: Duration,
    ): CompletableFuture<Decision> = scope.future { acquire(request, timeout) }

    /** [take] for Java. */
    public fun takeFuture(request: Request): CompletableFuture<Usage> = scope.future { take(request) }

    /** [charge] for Java. */
    public fun chargeFuture(request: Request): CompletableFuture<Usage> = scope.future { charge(request) }

    /** [refund] for Java. */
    public fun refundFuture(request: Request): CompletableFuture<Usage> = scope.future { refund(request) }
}
