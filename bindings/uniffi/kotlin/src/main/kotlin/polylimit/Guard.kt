package polylimit

import java.lang.ref.Cleaner
import java.lang.ref.Reference
import java.util.concurrent.CompletableFuture

/**
 * What is known about a request.
 *
 * @property key the key, where the program finds it: up to 1 MiB.
 * @property parts the values of [Guard.keyParts], in order; that of the address is not read.
 * @property peer the other end of the socket.
 * @property forwarded the values of all lines of the header that [ClientAddressRules] name, in the order they were received.
 * @property cost the units that the request spends, 0 to 10^12, where they are not the guard's.
 * @property policies the policies of this request, in place of the guard's; with none in the list it is not limited.
 * @property accept the request's `accept` field.
 * @property route the framework's name of the route, for a guard with a budget for each route.
 * @property outer the check of the guard around this one, on the same request.
 * @property attributes the attributes of the request, for a guard that decides by the configuration of its limiter.
 * @property costs the units that the request spends under single policies, 0 to 10^12, by what the guard's options call them.
 */
public class GuardFacts(
    public val key: ByteArray? = null,
    public val parts: List<ByteArray?> = emptyList(),
    public val peer: String,
    public val forwarded: List<String> = emptyList(),
    public val cost: Long? = null,
    public val policies: List<String>? = null,
    public val accept: String? = null,
    public val route: String? = null,
    public val outer: GuardCheck? = null,
    public val attributes: RequestAttributes? = null,
    public val costs: Map<String, Long> = emptyMap(),
) {
    /** Shows no key. */
    override fun toString(): String = "GuardFacts(cost=$cost, policies=$policies, costs=$costs)"

    internal fun write(
        buffer: CallBuffer,
        guard: Long,
    ) {
        buffer.putLong(guard).put(cost != null).putLong(cost ?: 0)
        buffer.putBytes(key).putText(peer).putText(accept)
        buffer.putInt(parts.size)
        for (part in parts) buffer.putBytes(part)
        buffer.putTexts(forwarded)
        buffer.put(policies != null).putTexts(policies.orEmpty())
        buffer.putText(route)
        buffer.putInt(costs.size)
        for ((policy, units) in costs) buffer.putText(policy).putLong(units)
    }
}

/** A policy, and what it decided about a request. */
public data class Outcome(
    val policy: Policy,
    val decision: Decision,
)

/**
 * The response to a request that does not proceed, besides the fields of its limits.
 *
 * @property status the status: 429 or the guard's own for a request over its limit, 503 for an outage, 400 for a request without
 *   a key.
 * @property detail one sentence for a person about this denial.
 * @property violated the quotas that were exceeded, by their names in `ratelimit-policy`.
 * @property fields the fields `content-type` and `vary`.
 * @property body a problem document (RFC 9457), or text for clients that prefer it.
 */
public data class Problem(
    val status: Int,
    val detail: String,
    val violated: List<String>,
    val fields: Map<String, String>,
    val body: String,
)

/**
 * An outage of the store: the outage policy decided, or nothing could because of an error.
 *
 * @property error why nothing could decide; null when the outage policy decided.
 */
public data class GuardOutage(
    val error: PolylimitException?,
)

/**
 * What happens with a request: without a [problem] it proceeds.
 *
 * @property fields the fields of the response, for all guards of the request so far: values by names in lower case.
 * @property problem the response to a request that does not proceed; null otherwise.
 * @property outage the outage that must be reported to the program before there is an answer: see [GuardCheck.overrule].
 * @property check what inner guards and the end of the request refer to, with the decisions.
 */
public class GuardAnswer internal constructor(
    public val fields: Map<String, String>,
    public val problem: Problem?,
    public val outage: GuardOutage?,
    public val check: GuardCheck,
)

/**
 * A limit on the requests of a web framework, made by [Limiter.guard]. It decides in one native call, and waits for the store on the
 * caller's thread, unless the method's name ends in `Future`.
 */
public class Guard internal constructor(
    private val native: NativeGuard,
) {
    private val address = native.address()

    /** Whether the configuration of the limiter decides, by the attributes of requests. */
    public val isByConfiguration: Boolean = native.isByConfiguration()

    /** Whether quotas without a name have a budget for each route, so that the guard needs the route of a request. */
    public val isPerRoute: Boolean = native.isPerRoute()

    /** The parts of the key as text, with the names of headers in lower case. */
    public fun keyParts(): List<String> = native.keyParts()

    /**
     * Whether requests of this method are limited.
     *
     * @param requestedMethod the `access-control-request-method` of an `OPTIONS` request that has an `origin`, unless the limit is
     *   attached to a handler: a preflight request, which is not counted by default.
     */
    @JvmOverloads
    public fun appliesTo(
        method: String,
        requestedMethod: String? = null,
    ): Boolean =
        CallBuffer.use { buffer ->
            perform(buffer.begin(DirectCalls.APPLIES_TO).putText(method).putText(requestedMethod), address)
            buffer.byte() != 0
        }

    /** The fields by which a page of this origin may read a denial, for a denial that has no `access-control-allow-origin` yet. */
    @JvmOverloads
    public fun corsFields(origin: String? = null): Map<String, String> = native.corsFields(origin)

    /**
     * Decides about a request, and refunds what outer guards have spent when this one denies it.
     *
     * @throws PolylimitException for an argument that is not allowed, and when the limiter is closed. An outage is no exception.
     */
    @Throws(PolylimitException::class)
    public fun decide(facts: GuardFacts): GuardAnswer {
        val outer = facts.outer ?: return decide(facts) { it.putByte(0) }
        // Nothing ends the outer check meanwhile.
        return synchronized(outer) { decide(facts, outer::writeAsOuter) }
    }

    private inline fun decide(
        facts: GuardFacts,
        writeOuter: (CallBuffer) -> Unit,
    ): GuardAnswer =
        CallBuffer.use { buffer ->
            write(facts, buffer.begin(DirectCalls.DECIDE))
            writeOuter(buffer)
            perform(buffer, 0)
            buffer.reply(facts.outer, GuardCheck(this, facts))
        }

    /**
     * As [decide], without waiting on the caller's thread. The future is complete when this returns, unless the store has to be waited for;
     * then what depends on it runs on the common pool. Cancelling the future closes its check.
     */
    public fun decideFuture(facts: GuardFacts): CompletableFuture<GuardAnswer> {
        val check = GuardCheck(this, facts)
        val call =
            object : GuardCall<GuardAnswer>(this, check) {
                override fun read(buffer: CallBuffer) = buffer.reply(facts.outer, check)

                override fun submitted(buffer: CallBuffer) {
                    check.keep(buffer.pendingAddress(0))
                    facts.outer?.keep(buffer.pendingAddress(1))
                }

                override fun giveBack(answer: GuardAnswer) = check.close()
            }
        val outer = facts.outer
        val write = { buffer: CallBuffer ->
            this.write(facts, buffer)
            if (outer == null) buffer.putByte(0) else outer.writeAsOuter(buffer)
        }
        // Nothing ends the outer check while native code looks at it.
        return if (outer == null) call.start(DirectCalls.DECIDE, write) else synchronized(outer) { call.start(DirectCalls.DECIDE, write) }
    }

    internal fun write(
        facts: GuardFacts,
        buffer: CallBuffer,
    ) {
        facts.write(buffer, address)
        if (isByConfiguration) buffer.putAttributes(facts.attributes ?: RequestAttributes())
    }

    internal fun perform(
        buffer: CallBuffer,
        target: Long,
    ): Int {
        try {
            return buffer.outcome(target)
        } finally {
            // Its native object must not be freed before.
            Reference.reachabilityFence(this)
        }
    }
}

/**
 * A guard's decision about one request. Any thread may use it. When several guards decide about a request, their checks have native
 * memory until [finish] or [close], or else until the garbage collector finds them; those that hold reservations, until [end] or [close].
 */
public class GuardCheck internal constructor(
    private val guard: Guard,
    private val facts: GuardFacts,
) : AutoCloseable {
    /** The decisions of this guard alone; together with the facts they stand for the check, in place of a native object. */
    private var own: List<Decision> = emptyList()
    private var fields: Map<String, String> = emptyMap()
    private var known: List<Outcome>? = null
    private var isPending = false

    /** Whether it has native memory, with other guards of the request or for what it [holds]. */
    internal val isShared: Boolean
        @Synchronized get() = kept != null

    /** Whether it holds reservations until the response is done: then [end] ends them, or else [close]. */
    @get:Synchronized
    public var holds: Boolean = false
        private set

    /** The native check, while there is one: guards of a request share their charges, or an outage is not concluded. */
    private var kept: KeptCheck? = null

    /**
     * The policies that were applied to the request so far, each with its newest decision; during an outage that the program has
     * not concluded, those of this guard.
     */
    @Synchronized
    public fun outcomes(): List<Outcome> = known ?: read(DirectCalls.OUTCOMES) {}.second

    /** The decisions of [outcomes], in their order. */
    @Synchronized
    public fun decisions(): List<Decision> = if (kept == null && known == null) own else outcomes().map { it.decision }

    /**
     * Concludes an answer with an outage: the program admits the request, denies it, or, with null, leaves it to the outage policy.
     *
     * @throws PolylimitException if there is no such outage, and if the limiter is closed.
     */
    @Synchronized
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun overrule(admit: Boolean? = null): GuardAnswer {
        val address = kept?.address
        if (!isPending || address == null) throw concluded()
        isPending = false
        return CallBuffer.use { buffer ->
            buffer.begin(DirectCalls.OVERRULE).putByte(if (admit == null) 2 else if (admit) 1 else 0)
            guard.perform(buffer, address)
            buffer.reply(null, this)
        }
    }

    /** As [overrule], without waiting on the caller's thread; see [Guard.decideFuture]. */
    @Synchronized
    @JvmOverloads
    public fun overruleFuture(admit: Boolean? = null): CompletableFuture<GuardAnswer> {
        if (!isPending || kept == null) return CompletableFuture.failedFuture(concluded())
        isPending = false
        val call =
            object : GuardCall<GuardAnswer>(guard, this) {
                override fun read(buffer: CallBuffer) = buffer.reply(null, this@GuardCheck)

                override fun giveBack(answer: GuardAnswer) = close()
            }
        return call.start(DirectCalls.OVERRULE) { it.putByte(if (admit == null) 2 else if (admit) 1 else 0) }
    }

    private fun concluded() = PolylimitException.InvalidArgument("the check is concluded: only an outage is overruled")

    /**
     * Ends the check when there is a response. A response that does not count gives its units back. Returns the fields of the
     * response after that. Later calls change nothing.
     */
    @Synchronized
    public fun finish(counts: Boolean): Map<String, String> {
        // Without other guards nothing changes for a response that counts.
        if (changesWith(counts)) finished(read(DirectCalls.FINISH) { it.put(counts) })
        return fields
    }

    /** As [finish], without waiting on the caller's thread; see [Guard.decideFuture]. */
    @Synchronized
    public fun finishFuture(counts: Boolean): CompletableFuture<Map<String, String>> {
        if (!changesWith(counts)) return CompletableFuture.completedFuture(fields)
        val call =
            object : GuardCall<Map<String, String>>(guard, this) {
                override fun read(buffer: CallBuffer) = finished(buffer.outcomes())

                override fun submitted(buffer: CallBuffer) = keep(buffer.pendingAddress(0))
            }
        return call.start(DirectCalls.FINISH) { buffer ->
            buffer.put(counts)
            if (kept == null) write(buffer)
        }
    }

    private fun changesWith(counts: Boolean) = known == null && (kept != null || (!counts && own.isNotEmpty()))

    private fun finished(answer: Pair<Map<String, String>, List<Outcome>>): Map<String, String> {
        fields = answer.first
        known = answer.second
        if (!holds) released()
        return fields
    }

    /**
     * Reads the fields of the response, for a check that [holds]. Returns whether [readBody] has to be called with each part of the body:
     * the guard's options or the configuration say that what was spent is in it.
     */
    @Synchronized
    public fun readHead(fields: List<Pair<String, String>>): Boolean {
        val address = kept?.address
        if (!holds || address == null) return false
        return CallBuffer.use { buffer ->
            buffer.begin(DirectCalls.READ_HEAD).putInt(fields.size)
            for ((name, value) in fields) buffer.putText(name).putText(value)
            guard.perform(buffer, address)
            buffer.byte() != 0
        }
    }

    /** Reads the next part of the body of the response, of any size, which is not kept. */
    @Synchronized
    @JvmOverloads
    public fun readBody(
        bytes: ByteArray,
        offset: Int = 0,
        length: Int = bytes.size - offset,
    ) {
        val address = kept?.address
        if (!holds || address == null) return
        val part = if (length == bytes.size) bytes else bytes.copyOfRange(offset, offset + length)
        CallBuffer.use { buffer -> guard.perform(buffer.begin(DirectCalls.READ_BODY).putBytes(part), address) }
    }

    /**
     * Ends what the check [holds], in the background, when the last byte of the response is sent or its client has gone: commits the units
     * that the request has spent, 0 to 10^12; null is what was reserved. Later calls change nothing.
     *
     * @throws PolylimitException for units that are not allowed: then those that were reserved are committed.
     */
    @Synchronized
    @JvmOverloads
    @Throws(PolylimitException::class)
    public fun end(spent: Long? = null) {
        if (!holds) return
        release {
            it.begin(DirectCalls.END_CHECK).put(spent != null)
            if (spent != null) it.putLong(spent)
        }
    }

    /**
     * As the other [end], with the units that the request has spent under each policy, by what the guard's options call it: null, and a
     * policy that is left out, is what was reserved.
     *
     * @throws PolylimitException for units that are not allowed and for policies that the guard does not have: then what was reserved is
     *   committed.
     */
    @Synchronized
    @Throws(PolylimitException::class)
    public fun end(spent: Map<String, Long?>) {
        if (!holds) return
        release {
            it.begin(DirectCalls.END_CHECK).putByte(EACH).putInt(spent.size)
            for ((policy, units) in spent) it.putText(policy).put(units != null).putLong(units ?: 0)
        }
    }

    /**
     * Releases what the check shares with other guards. The decisions can still be read. What it holds ends in the background, as if the
     * client had gone.
     */
    @Synchronized
    override fun close(): Unit = release { it.begin(DirectCalls.RELEASE) }

    private inline fun release(begin: (CallBuffer) -> Unit) {
        val address = kept?.address ?: return
        known = read(DirectCalls.OUTCOMES) {}.second
        CallBuffer.use { buffer ->
            begin(buffer)
            buffer.perform(address)
            released()
            buffer.throwError()
        }
    }

    private fun released() {
        kept?.isReleased()
        kept = null
        holds = false
    }

    internal fun decided(
        own: List<Decision>,
        fields: Map<String, String>,
        step: Int,
    ) {
        this.own = own
        this.fields = fields
        isPending = step == OUTAGE
        holds = step == HOLDS
    }

    /** The address of the native check; 0 where there is none. */
    internal val address: Long get() = kept?.address ?: 0

    /** Owns the native check from here on. */
    internal fun keep(address: Long) {
        if (address != 0L) kept = KeptCheck(this, address)
    }

    internal fun writeAsOuter(buffer: CallBuffer): CallBuffer {
        val address = kept?.address
        return if (address != null) buffer.putByte(1).putLong(address) else write(buffer.putByte(2))
    }

    private fun write(buffer: CallBuffer): CallBuffer {
        guard.write(facts, buffer)
        buffer.putInt(own.size)
        for (decision in own) buffer.putDecision(decision)
        return buffer
    }

    private inline fun read(
        operation: Int,
        arguments: (CallBuffer) -> Unit,
    ): Pair<Map<String, String>, List<Outcome>> =
        CallBuffer.use { buffer ->
            val address = kept?.address ?: 0
            arguments(buffer.begin(operation))
            if (address == 0L) write(buffer)
            guard.perform(buffer, address)
            buffer.outcomes()
        }
}

/** A native check, which is released when the check ends, or else when the garbage collector finds its owner. */
private class KeptCheck(
    owner: GuardCheck,
    val address: Long,
) {
    private val release = Release(address)
    private val cleanable = CLEANER.register(owner, release)

    /** Native code has released it. */
    fun isReleased() {
        release.address = 0
        cleanable.clean()
    }

    private class Release(
        @Volatile var address: Long,
    ) : Runnable {
        override fun run() {
            if (address != 0L) CallBuffer.use { it.begin(DirectCalls.RELEASE).perform(address) }
        }
    }

    private companion object {
        val CLEANER: Cleaner = Cleaner.create()
    }
}

private const val DENIED = 1
private const val OUTAGE = 2
private const val HOLDS = 3

/** What was spent is known by policies. */
private const val EACH = 2

/** The reply of a guard about this check. */
private fun CallBuffer.reply(
    outer: GuardCheck?,
    check: GuardCheck,
): GuardAnswer {
    if (byte() == 0) throw error()
    val step = byte()
    check.keep(long())
    // An outer check that was restored is a native object from here on.
    long().let { outer?.keep(it) }
    val decisions = list(::decision)
    val fields = fields()
    check.decided(decisions, fields, step)
    val problem = if (step == DENIED) problem() else null
    val outage = if (step == OUTAGE) GuardOutage(list { errorOf(text(), text()) }.firstOrNull()) else null
    return GuardAnswer(fields, problem, outage, check)
}

private fun CallBuffer.outcomes(): Pair<Map<String, String>, List<Outcome>> {
    if (byte() == 0) throw error()
    return fields() to list { Outcome(Policy(text(), text()), decision()) }
}

internal fun CallBuffer.problem(): Problem = Problem(int(), text(), list(::text), fields(), text())

internal fun CallBuffer.fields(): Map<String, String> {
    val count = int()
    val fields = LinkedHashMap<String, String>(2 * count)
    repeat(count) { fields[text()] = text() }
    return fields
}
