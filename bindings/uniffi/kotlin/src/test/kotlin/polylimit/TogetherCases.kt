package polylimit

import com.fasterxml.jackson.databind.JsonNode
import kotlinx.coroutines.runBlocking
import java.time.Duration
import java.time.Instant
import java.time.temporal.ChronoUnit

/** Runs cases of format 5, requests over several policies, through both faces. */
internal class TogetherCases(
    private val store: String,
) {
    private val started = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())

    /** Runs the cases, and prints how many agree. */
    fun runAll(cases: List<JsonNode>): Boolean =
        listOf("kotlin" to BLOCKING, "kotlin (coroutines)" to SUSPENDING)
            .map { (name, face) ->
                val agreed =
                    cases.withIndex().count { (number, case) ->
                        // A store that outlives this process has never seen such a key.
                        val difference = runCase(case, "$name $started $number", face)
                        if (difference != null) println("$name $store: case ${case["name"]}, $difference")
                        difference == null
                    }
                println("$name $store: $agreed of ${cases.size} cases agree")
                agreed == cases.size
            }.all { it }

    /** Which operation differs and how; null when all agree. */
    private fun runCase(
        case: JsonNode,
        prefix: String,
        face: TogetherFace,
    ): String? {
        val clock = ManualClock(0)
        // What the store does not answer must not look as if it did.
        val outage = if (store.startsWith("redis")) "deny" else null
        val policies = case["policies"].properties().map { (name, quotas) -> Policy(name, quotasOf(quotas), outage = outage) }
        Limiter(Settings(if (store == "memory") "memory:" else store, policies, clock = clock)).use { limiter ->
            try {
                return difference(case, limiter, clock, prefix, face)
            } finally {
                // A manual clock's keys do not expire.
                case["ops"].flatMap { requestsOf(it, prefix) }.distinct().forEach(limiter::reset)
            }
        }
    }

    private fun difference(
        case: JsonNode,
        limiter: Limiter,
        clock: ManualClock,
        prefix: String,
        face: TogetherFace,
    ): String? {
        for ((at, operation) in case["ops"].withIndex()) {
            clock.set(operation["at_us"].longValue())
            val got =
                try {
                    shown(face(limiter, operation, requestsOf(operation, prefix)))
                } catch (refused: PolylimitException) {
                    return "operation $at, refused: ${refused.message}"
                }
            val expected = valueOf(operation["expect"]) as Map<*, *>
            val compared = if ("retry_after_us" in expected) got else got - "retry_after_us"
            if (compared != expected) return "operation $at $operation\n  expected $expected\n  got      $compared"
        }
        return null
    }
}

/** Makes an operation about these requests, of which one on a single key has one. */
private typealias TogetherFace = (Limiter, JsonNode, List<Request>) -> Any

private val BLOCKING: TogetherFace = { limiter, operation, requests ->
    when (operation["op"].asText()) {
        "check_all" -> limiter.checkTogether(requests)
        "peek_all" -> limiter.peekTogether(requests)
        "reserve_all" -> limiter.reserveTogether(requests, operation["id"].asText(), ttlOf(operation))
        "check" -> limiter.check(requests.single())
        "peek" -> limiter.peek(requests.single())
        "charge" -> limiter.charge(requests.single())
        "refund" -> limiter.refund(requests.single())
        "reset" -> limiter.reset(requests.single())
        else -> error("$operation is not known")
    }
}

private val SUSPENDING: TogetherFace = { limiter, operation, requests ->
    val asynchronous = limiter.asynchronous
    runBlocking {
        when (operation["op"].asText()) {
            "check_all" -> asynchronous.checkTogether(requests)
            "peek_all" -> asynchronous.peekTogether(requests)
            "reserve_all" -> asynchronous.reserveTogether(requests, operation["id"].asText(), ttlOf(operation))
            else -> BLOCKING(limiter, operation, requests)
        }
    }
}

private fun ttlOf(operation: JsonNode) = Duration.of(operation["ttl_us"].longValue(), ChronoUnit.MICROS)

private fun requestsOf(
    operation: JsonNode,
    prefix: String,
): List<Request> =
    (operation["charges"]?.toList() ?: listOf(operation)).map {
        request("$prefix ${it["key"].asText()}", it["policy"].asText(), it["cost"]?.longValue())
    }

private fun valueOf(node: JsonNode): Any? =
    when {
        node.isNull -> null
        node.isBoolean -> node.booleanValue()
        node.isArray -> node.map(::valueOf)
        node.isObject -> node.properties().associate { (name, value) -> name to valueOf(value) }
        else -> node.longValue()
    }

/** The answer in the form in which a case expects it; nothing of one that an outage policy made. */
private fun shown(answer: Any): Map<String, Any?> =
    when (answer) {
        is Decision ->
            if (answer.isOutage) {
                emptyMap()
            } else {
                mapOf(
                    "allowed" to answer.allowed,
                    "remaining" to answer.remaining,
                    "retry_after_us" to answer.retryAfter?.let(::microsOf),
                    "reset_after_us" to microsOf(answer.resetAfter),
                )
            }
        is Usage ->
            if (answer.isOutage) {
                emptyMap()
            } else {
                mapOf("remaining" to answer.remaining, "reset_after_us" to microsOf(answer.resetAfter))
            }
        is RequestReservation -> shown(answer.decisions) + ("allowed" to answer.allowed)
        is List<*> -> ofRequest(answer.filterIsInstance<Decision>())
        else -> error("an operation was answered with $answer")
    }

private fun ofRequest(decisions: List<Decision>): Map<String, Any?> =
    mapOf(
        "allowed" to decisions.all { it.allowed },
        "retry_after_us" to if (decisions.any { it.retryAfter == null }) null else decisions.maxOf { microsOf(it.retryAfter!!) },
        "decisions" to decisions.map { shown(it) },
    )

private fun microsOf(duration: Duration): Long = duration.seconds * 1_000_000 + duration.nano / 1_000
