package polylimit

/** The operations of [Limiter] that tell what it knows: lists of keys, explanations, counters of keys, and metrics. */
public abstract class LimiterReports internal constructor() {
    internal abstract val target: CallTarget
    internal abstract val native: NativeLimiter

    /**
     * The keys that the store has, with what is used of their quotas, a page at a time. A key that is there from the first page to the
     * last is listed; a key that comes or goes meanwhile may be. In Redis each call is followed by a pause, so that a list takes a tenth
     * of the server's time at most; this thread can be interrupted meanwhile.
     */
    @JvmOverloads
    @Throws(PolylimitException::class, InterruptedException::class)
    public fun list(options: ListOptions = ListOptions()): KeyPage = target.answerInterruptibly(Call.list(options))

    /** The keys of which the most is used, so many at most, first the one of which most is; can be interrupted. */
    @JvmOverloads
    @Throws(PolylimitException::class, InterruptedException::class)
    public fun scanTop(
        number: Long,
        options: ListOptions = ListOptions(),
    ): KeyPage = target.answerInterruptibly(Call.scanTop(number, options))

    /**
     * Lists a page of keys as [list] does, and resets them: the store forgets them, with what they have used, their blocks and their
     * reservations. Keys of policies that this limiter does not know stay. Keys may have been reset before an exception.
     */
    @JvmOverloads
    @Throws(PolylimitException::class, InterruptedException::class)
    public fun resetListed(options: ListOptions = ListOptions()): ResetPage = target.answerInterruptibly(Call.resetListed(options))

    /**
     * Why a request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and reservations; and
     * what the configuration says about the key. It charges nothing. While the store does not answer it is unavailable: no outage policy
     * answers in its place.
     */
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun explain(
        key: String,
        policy: String? = null,
        cost: Long? = null,
        headroom: Int = 0,
        plan: String? = null,
    ): KeyExplanation = explain(request(key, policy, cost, headroom, plan))

    /** As the other `explain`, for a key of bytes. */
    @Throws(PolylimitException::class)
    public fun explain(request: Request): KeyExplanation = target.answer(Call.explain(request))

    /**
     * Why a request, by its attributes, would be admitted or denied by the configuration: the lists, the rules that match, and what each
     * of their policies says.
     */
    @Throws(PolylimitException::class)
    public fun explainRequest(attributes: RequestAttributes): RequestExplanation = target.answer(Call.explainRequest(attributes))

    /**
     * The keys that this limiter has denied and admitted most often in this process lately, so many of each at most. It needs the option
     * `observe_keys`; without, there are none. One of 16 denials and one of 64 admissions are counted, and all counts are halved once a
     * minute. No store is asked.
     */
    @Throws(PolylimitException::class)
    public fun topKeys(number: Long): TopKeys = native.topKeys(number)

    /** What the limiter has counted, and the state of its store and its configuration: see docs/metrics.md. */
    public fun metrics(): List<MetricFamily> = native.metrics()

    /**
     * The same as text: `prometheus`, whose media type is `text/plain; version=0.0.4; charset=utf-8`, or `openmetrics`, whose media
     * type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
     */
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun metricsText(format: String = "prometheus"): String = native.metricsText(format)
}

/**
 * Which keys a list has, and when a page of it ends: all keys, and pages of 1,000, unless it is told otherwise.
 *
 * ```
 * val options = ListOptions().policy("api").keyPrefix("user:").atLeastUsed(80)
 * do {
 *     val page = limiter.list(options)
 *     page.keys.forEach { println("${it.key.text}: ${it.usedPercent} %") }
 *     options.cursor(page.cursor)
 * } while (page.cursor != null)
 * ```
 */
public class ListOptions {
    private var policy: String? = null
    private var keyPrefix: ByteArray? = null
    private var cursor: String? = null
    private val numbers = arrayOfNulls<Long>(NUMBERS)

    /** Only keys of this policy: its name, or its quotas as text. */
    public fun policy(policy: String): ListOptions = apply { this.policy = policy }

    /** Only keys that begin with this text. A key of which only the digest is known begins with none. */
    public fun keyPrefix(prefix: String): ListOptions = keyPrefix(prefix.encodeToByteArray())

    /** Only keys that begin with these bytes. */
    public fun keyPrefix(prefix: ByteArray): ListOptions = apply { keyPrefix = prefix }

    /** Only keys of which at least so much is used, in percent, 0 to 255. */
    public fun atLeastUsed(percent: Int): ListOptions = apply { numbers[0] = percent.toLong() }

    /** The page ends once it has so many keys, 1 or more; it may have about a thousand more. */
    public fun entries(entries: Long): ListOptions = apply { numbers[1] = entries }

    /** The page ends once the store has gone over so many keys, 1 or more; 100,000 by default. */
    public fun examined(examined: Long): ListOptions = apply { numbers[2] = examined }

    /** The share of one server's time that a list in Redis may take, in percent, 1 to 100; 10 by default. */
    public fun pacePercent(percent: Int): ListOptions = apply { numbers[3] = percent.toLong() }

    /** Where the list goes on: the cursor of the page before; null is the beginning. `scanTop` has none. */
    public fun cursor(cursor: String?): ListOptions = apply { this.cursor = cursor }

    internal fun write(buffer: CallBuffer): CallBuffer {
        buffer.putText(policy).putBytes(keyPrefix).putText(cursor)
        for (number in numbers) buffer.put(number != null).putLong(number ?: 0)
        return buffer
    }

    private companion object {
        const val NUMBERS = 4
    }
}
