package polylimit

import java.time.Duration

/** The operations for operators. Made by [Limiter.admin], with which it shares everything; it keeps the limiter alive. */
public class Admin internal constructor(
    private val target: CallTarget,
) {
    private val native by lazy(target.native::admin)

    /**
     * Denies every request of the key under its policy for that long, 1 ms to 366 days; zero ends a block and forgets the key's
     * penalties. Costs and plans do not matter.
     */
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun block(
        key: String,
        time: Duration,
        policy: String? = null,
    ): Usage = block(request(key, policy), time)

    /** As the other `block`, for a key of bytes. */
    @Throws(PolylimitException::class)
    public fun block(
        request: Request,
        time: Duration,
    ): Usage = target.answer(Call.block(request, time))

    /** Ends a block of the key under its policy, and forgets its penalties. */
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun unblock(
        key: String,
        policy: String? = null,
    ): Usage = unblock(request(key, policy))

    /** As the other `unblock`, for a key of bytes. */
    @Throws(PolylimitException::class)
    public fun unblock(request: Request): Usage = block(request, Duration.ZERO)

    /** Examines the store for an operator. */
    @Throws(PolylimitException::class, InterruptedException::class)
    public fun doctor(): List<Finding> = target.answerInterruptibly(Call.doctor())

    /** How many keys the memory store or the local one holds a state for; null for a store elsewhere. */
    public val keys: Long? get() = native.keys()

    /**
     * The keys that the store has, with what is used of their quotas, a page at a time. A key that is there from the first page to the
     * last is listed; a key that comes or goes meanwhile may be. In Redis each call is followed by a pause, so that a list takes a tenth
     * of the server's time at most; this thread can be interrupted meanwhile.
     */
    @JvmOverloads
    @Throws(PolylimitException::class, InterruptedException::class)
    public fun list(options: ListOptions = ListOptions()): KeyPage = target.answerInterruptibly(Call.list(options))

    /** The most used keys, at most this many, in descending order; can be interrupted. */
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
     * The keys that this limiter has denied and admitted most often in this process lately, this many of each at most. It needs the option
     * `observe_keys`; without, there are none. One of 16 denials and one of 64 admissions are counted, and all counts are halved once a
     * minute. No store is asked.
     */
    @Throws(PolylimitException::class)
    public fun topKeys(number: Long): TopKeys = native.topKeys(number)

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

    /** The policies that the rules apply to a request, each with its key, cost and headroom. Asks no store. */
    @Throws(PolylimitException::class)
    public fun matching(attributes: RequestAttributes): List<PolicyMatch> = target.answer(Call.matching(attributes))

    /** How the candidate of a policy compares with the effective quotas; null for a policy without a candidate. */
    public fun candidateCounts(policy: String): CandidateCounts? = native.candidateCounts(policy)

    /** Which configuration is active; null for a limiter that has none. */
    public val configuration: ConfigurationStatus? get() = target.configuration()

    /**
     * Replaces the document that the program has given, in TOML or JSON; its entries stay. One that cannot be used is refused with
     * `line L, column C:`, what was read and what is allowed, and the previous one stays active.
     */
    @Throws(PolylimitException::class)
    public fun setDocument(text: String): ConfigurationStatus = target.answer(Call.setDocument(text))

    /**
     * Sets an entry: `deny ITEM`, `allow ITEM` or `override POLICY KEY`. The value is a JSON object that may have `until`, `by`, `why`
     * and, for an override, `numbers`.
     */
    @Throws(PolylimitException::class)
    public fun setEntry(
        item: String,
        value: String,
    ): ConfigurationStatus = target.answer(Call.setEntry(item, value))

    /** As the other `setEntry`, with the value's texts by their names. */
    @Throws(PolylimitException::class)
    public fun setEntry(
        item: String,
        value: Map<String, String>,
    ): ConfigurationStatus = setEntry(item, entryValue(value))

    /** Deletes an entry; one that is not there is no error. */
    @Throws(PolylimitException::class)
    public fun deleteEntry(item: String): ConfigurationStatus = target.answer(Call.deleteEntry(item))

    /**
     * Publishes a document, in TOML or JSON, to the Redis store that the configuration comes from, and waits until it is active
     * here. Every process that follows the store takes it within a second.
     */
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun publish(
        document: String,
        options: PublishOptions = PublishOptions(),
    ): ConfigurationStatus = target.answer(Call.publish(document, options))

    /** Waits until this version of the configuration or a later one is active, at most for that long; can be interrupted. */
    @Throws(PolylimitException::class, InterruptedException::class)
    public fun waitForVersion(
        version: Long,
        timeout: Duration,
    ): ConfigurationStatus = target.answerInterruptibly(Call.waitForVersion(version, timeout))

    /** Authenticates new connections with another password, and user name if there is one, from now on. */
    @Throws(PolylimitException::class)
    public fun setCredentials(
        username: String?,
        password: String,
    ): Unit = native.setCredentials(username, password)
}
