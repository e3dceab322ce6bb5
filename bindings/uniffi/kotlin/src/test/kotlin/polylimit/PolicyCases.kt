package polylimit

import com.fasterxml.jackson.databind.JsonNode
import kotlinx.coroutines.runBlocking
import java.nio.file.Files
import java.nio.file.Path
import java.time.Duration
import java.time.temporal.ChronoUnit
import java.util.concurrent.atomic.AtomicInteger

/** Monday 2026-09-21, from which the times of the cases count. */
private const val START_US = 1_789_948_800_000_000

/** Runs cases of format 3: a document, and operations of a limiter that has its limits from it. */
internal class PolicyCases(
    private val store: String,
) {
    /** Runs the cases through each face, and prints how many agree. */
    fun runAll(cases: List<JsonNode>): Boolean =
        listOf("kotlin" to Blocking, "kotlin (coroutines)" to Suspending, "kotlin (futures)" to Futures)
            .map { (name, face) ->
                val agreed =
                    cases.count { case ->
                        val difference = Place(store).use { place -> runCase(case, place, face) }
                        if (difference != null) println("$name $store: case ${case["name"]}, $difference")
                        difference == null
                    }
                println("$name $store: $agreed of ${cases.size} cases agree")
                agreed == cases.size
            }.all { it }

    /** Which operation differs and how; null when all agree. */
    private fun runCase(
        case: JsonNode,
        place: Place,
        face: PolicyFace,
    ): String? {
        val clock = ManualClock(START_US)
        val settings = Settings(place.url, options = place.options, clock = clock, document = case["document"].toString())
        try {
            Limiter(settings).use { limiter -> return difference(case, limiter, clock, face) }
        } catch (refused: PolylimitException) {
            return "the document is refused: ${refused.message}"
        }
    }

    private fun difference(
        case: JsonNode,
        limiter: Limiter,
        clock: ManualClock,
        face: PolicyFace,
    ): String? {
        val reservations = mutableListOf<AutoCloseable>()
        try {
            for ((at, operation) in case["ops"].withIndex()) {
                clock.set(START_US + operation["t_us"].longValue())
                val got =
                    try {
                        shown(face.answer(limiter, PolicyOperation(operation)).also { if (it is AutoCloseable) reservations += it })
                    } catch (refused: PolylimitException) {
                        mapOf("error" to refused.code)
                    }
                if (!agrees(operation["expect"], got)) return "operation $at $operation\n  got      $got"
            }
        } finally {
            reservations.forEach(AutoCloseable::close)
        }
        return null
    }
}

/** Where a case keeps its states, apart from every other case. */
private class Place(
    store: String,
) : AutoCloseable {
    private val folder: Path? = if (store.startsWith("local:")) Files.createTempDirectory("polylimit-case") else null

    val url =
        when {
            store == "memory" -> "memory:"
            folder != null -> "file://$folder/store?size=1MiB"
            else -> store
        }

    val options =
        if (store.startsWith("redis")) {
            mapOf("prefix" to "case-kotlin-${ProcessHandle.current().pid()}-${NUMBER.incrementAndGet()}")
        } else {
            emptyMap()
        }

    override fun close() {
        folder?.toFile()?.deleteRecursively()
    }

    private companion object {
        val NUMBER = AtomicInteger()
    }
}

/** An operation of a case with its arguments. */
private class PolicyOperation(
    private val node: JsonNode,
) {
    val name = text("op").orEmpty()
    val id = text("id").orEmpty()
    val cost = node["cost"]?.longValue()
    val ttl: Duration? = node["ttl_us"]?.let { micros(it.longValue()) }
    val time: Duration = micros(node["for_us"]?.longValue() ?: 0)
    val policy = text("policy") ?: "p"
    val request = request(text("key") ?: "k", policy, cost, node["headroom"]?.intValue() ?: 0, text("plan"))
    val options get() = ReserveOptions(id = id, ttl = ttl, maxAge = Duration.ZERO)
    val document get() = text("text") ?: node["document"].toString()
    val set = text("set")
    val value get() = node["value"].toString()
    val deleted get() = text("delete").orEmpty()

    val attributes: RequestAttributes
        get() {
            val request = node["request"]
            return RequestAttributes(
                method = request["method"]?.textValue(),
                path = request["path"]?.textValue(),
                peer = request["peer"]?.textValue(),
                headers = request["headers"]?.map { it[0].textValue() to it[1].textValue() }.orEmpty(),
                attributes = request["attributes"]?.properties()?.associate { (name, value) -> name to value.textValue() }.orEmpty(),
            )
        }

    private fun text(name: String): String? = node[name]?.textValue()

    private fun micros(microseconds: Long) = Duration.of(microseconds, ChronoUnit.MICROS)
}

/** A change of the configuration, which a case expects to succeed or not. */
private class Change(
    val error: PolylimitException?,
)

private inline fun outcome(change: () -> Unit): Change =
    try {
        change()
        Change(null)
    } catch (refused: PolylimitException) {
        Change(refused)
    }

/** A way to ask a limiter. */
private fun interface PolicyFace {
    fun ask(
        limiter: Limiter,
        operation: PolicyOperation,
    ): Any

    fun answer(
        limiter: Limiter,
        operation: PolicyOperation,
    ): Any =
        when (operation.name) {
            "configuration" -> outcome { limiter.admin().setDocument(operation.document) }
            "entry" -> outcome { ask(limiter, operation) }
            "match" -> limiter.admin().matching(operation.attributes)
            "candidate" -> limiter.admin().candidateCounts(operation.policy) ?: CandidateCounts(0, 0, 0, 0)
            else -> ask(limiter, operation)
        }
}

private val Blocking =
    PolicyFace { limiter, operation ->
        val request = operation.request
        when (operation.name) {
            "check" -> limiter.check(request)
            "peek" -> limiter.peek(request)
            "take" -> limiter.take(request)
            "charge" -> limiter.charge(request)
            "refund" -> limiter.refund(request)
            "reset" -> limiter.reset(request)
            "block" -> limiter.admin().block(request, operation.time)
            "reserve" -> limiter.reserve(request, operation.options)
            "commit" -> limiter.commit(request, operation.id, operation.cost)
            "cancel" -> limiter.cancel(request, operation.id)
            "renew" -> limiter.renew(request, operation.id, operation.ttl ?: Duration.ZERO)
            "entry" ->
                if (operation.set != null) {
                    limiter.admin().setEntry(operation.set, operation.value)
                } else {
                    limiter.admin().deleteEntry(operation.deleted)
                }
            "decide" -> limiter.decide(operation.attributes, operation.id.ifEmpty { null }, operation.ttl)
            else -> error("${operation.name} is not known")
        }
    }

private val Suspending =
    PolicyFace { limiter, operation ->
        val request = operation.request
        val asynchronous = limiter.asynchronous
        runBlocking {
            when (operation.name) {
                "check" -> asynchronous.check(request)
                "peek" -> asynchronous.peek(request)
                "take" -> asynchronous.take(request)
                "charge" -> asynchronous.charge(request)
                "refund" -> asynchronous.refund(request)
                "reset" -> asynchronous.reset(request)
                "block" -> asynchronous.admin().block(request, operation.time)
                "reserve" -> asynchronous.reserve(request, operation.options)
                "commit" -> asynchronous.commit(request, operation.id, operation.cost)
                "cancel" -> asynchronous.cancel(request, operation.id)
                "renew" -> asynchronous.renew(request, operation.id, operation.ttl ?: Duration.ZERO)
                "entry" ->
                    if (operation.set != null) {
                        asynchronous.admin().setEntry(operation.set, operation.value)
                    } else {
                        asynchronous.admin().deleteEntry(operation.deleted)
                    }
                "decide" -> asynchronous.decide(operation.attributes, operation.id.ifEmpty { null }, operation.ttl)
                else -> error("${operation.name} is not known")
            }
        }
    }

private val Futures =
    PolicyFace { limiter, operation ->
        val request = operation.request
        val asynchronous = limiter.asynchronous
        val future =
            when (operation.name) {
                "check" -> asynchronous.checkFuture(request)
                "peek" -> asynchronous.peekFuture(request)
                "take" -> asynchronous.takeFuture(request)
                "charge" -> asynchronous.chargeFuture(request)
                "refund" -> asynchronous.refundFuture(request)
                "reset" -> asynchronous.resetFuture(request)
                "block" -> asynchronous.admin().blockFuture(request, operation.time)
                "reserve" -> asynchronous.reserveFuture(request, operation.options)
                "commit" -> asynchronous.commitFuture(request, operation.id, operation.cost)
                "cancel" -> asynchronous.cancelFuture(request, operation.id)
                "renew" -> asynchronous.renewFuture(request, operation.id, operation.ttl ?: Duration.ZERO)
                "entry" ->
                    if (operation.set != null) {
                        asynchronous.admin().setEntryFuture(operation.set, operation.value)
                    } else {
                        asynchronous.admin().deleteEntryFuture(operation.deleted)
                    }
                "decide" -> asynchronous.decideFuture(operation.attributes, operation.id.ifEmpty { null }, operation.ttl)
                else -> error("${operation.name} is not known")
            }
        try {
            future.get()
        } catch (failure: java.util.concurrent.ExecutionException) {
            throw failure.cause ?: failure
        }
    }

/** Whether everything that is expected is there and equal; `about` is part of the message. */
private fun agrees(
    expected: JsonNode,
    got: Any?,
): Boolean =
    when {
        expected.isObject ->
            got is Map<*, *> &&
                expected.properties().all { (name, value) ->
                    if (name == "about") got[name].toString().contains(value.textValue()) else agrees(value, got[name])
                }
        expected.isArray -> got is List<*> && got.size == expected.size() && got.indices.all { agrees(expected[it], got[it]) }
        expected.isNull -> got == null
        expected.isTextual -> got == expected.textValue()
        expected.isBoolean -> got == expected.booleanValue()
        else -> got is Number && got.toLong() == expected.longValue()
    }

private fun shown(answer: Any): Any =
    when (answer) {
        is Reservation -> shown(answer.decision)
        is AsyncReservation -> shown(answer.decision)
        is Decision -> shownDecision(answer)
        is Usage ->
            mapOf(
                "remaining" to answer.remaining,
                "reset_after_us" to microsecondsOf(answer.resetAfter),
                "taken" to answer.taken,
                "found" to answer.found,
            )
        is RequestDecision ->
            mapOf(
                "allowed" to answer.allowed,
                "cause" to answer.cause,
                "status" to answer.status,
                "retry_after_us" to answer.retryAfter?.let(::microsecondsOf),
                "decisions" to answer.decisions.map { shownMatch(it.match) + shownDecision(it.decision) },
            )
        is CandidateCounts ->
            mapOf(
                "both_allow" to answer.bothAllow,
                "only_live_denies" to answer.onlyLiveDenies,
                "only_candidate_denies" to answer.onlyCandidateDenies,
                "both_deny" to answer.bothDeny,
            )
        is Change -> shownOutcome(answer.error)
        is List<*> -> answer.map { shownMatch(it as PolicyMatch) }
        else -> error("an operation was answered with $answer")
    }

private fun shownMatch(match: PolicyMatch) =
    mapOf("policy" to match.policy, "key" to match.key.decodeToString(), "cost" to match.cost, "headroom" to match.headroom)

private fun shownDecision(decision: Decision): Map<String, Any?> =
    if (decision.isOutage) {
        mapOf("outage" to true)
    } else {
        mapOf(
            "allowed" to decision.allowed,
            "remaining" to decision.remaining,
            "retry_after_us" to decision.retryAfter?.let(::microsecondsOf),
            "reset_after_us" to microsecondsOf(decision.resetAfter),
            "delay_us" to microsecondsOf(decision.delay),
            "over" to decision.over,
            "crossed" to decision.crossed,
            "elastic" to decision.elastic,
            "shadowed" to decision.shadowed,
            "cause" to decision.cause,
        )
    }

private fun shownOutcome(error: PolylimitException?): Map<String, Any?> {
    if (error == null) return mapOf("ok" to true)
    val line = Regex("^line (\\d+),").find(error.message.orEmpty())?.groupValues?.get(1)?.toInt() ?: 0
    return mapOf("ok" to false, "line" to line, "about" to error.message)
}
