@file:JvmName("Conformance")

package polylimit

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.ObjectMapper
import kotlinx.coroutines.runBlocking
import java.io.File
import java.time.Duration
import java.time.Instant
import java.time.temporal.ChronoUnit
import kotlin.system.exitProcess

/** Runs a file of conformance cases through both faces, and prints how many cases agree. */
public fun main(arguments: Array<String>) {
    if (arguments.size != 2) {
        System.err.println("usage: run FILE STORE")
        exitProcess(2)
    }
    val (path, store) = arguments
    val file = ObjectMapper().readTree(File(path))
    val cases = file["cases"]?.toList().orEmpty()
    val format = file["format"]?.asInt()
    if (format !in listOf(1, 2, 3, 4, 5) || cases.isEmpty() || cases.any { it["ops"].isEmpty }) {
        System.err.println("$path: this runner reads formats 1 to 5, with cases that have operations")
        exitProcess(2)
    }
    if (format == 3) exitProcess(if (PolicyCases(store).runAll(cases)) 0 else 1)
    if (format == 5) exitProcess(if (TogetherCases(store).runAll(cases)) 0 else 1)
    val agree = listOf(BLOCKING, COROUTINES).map { face -> face.runAll(cases, store) }
    exitProcess(if (agree.all { it }) 0 else 1)
}

private class Face(
    val name: String,
    val decide: Limiter.(JsonNode, Request) -> Any,
)

/** Handles renew and end nothing while a case runs: the case says what happens. */
private fun optionsOf(operation: JsonNode) =
    ReserveOptions(id = operation.id(), ttl = operation.ttl(), maxAge = Duration.ZERO, remember = operation.remember())

private fun JsonNode.id() = this["id"].asText()

private fun JsonNode.ttl() = Duration.of(this["ttl_us"].longValue(), ChronoUnit.MICROS)

private fun JsonNode.remember() = this["remember_us"]?.let { Duration.of(it.longValue(), ChronoUnit.MICROS) }

private val BLOCKING =
    Face("kotlin") { operation, request ->
        when (operation["op"].asText()) {
            "check" -> check(request)
            "peek" -> peek(request)
            "take" -> take(request)
            "charge" -> charge(request)
            "refund" -> refund(request)
            "reset" -> reset(request)
            "reserve" -> reserve(request, optionsOf(operation))
            "commit" -> commit(request, operation.id(), request.cost)
            "cancel" -> cancel(request, operation.id())
            "renew" -> renew(request, operation.id(), operation.ttl())
            else -> error("$operation is not known")
        }
    }

private val COROUTINES =
    Face("kotlin (coroutines)") { operation, request ->
        runBlocking {
            when (operation["op"].asText()) {
                "check" -> asynchronous.check(request)
                "peek" -> asynchronous.peek(request)
                "take" -> asynchronous.take(request)
                "charge" -> asynchronous.charge(request)
                "refund" -> asynchronous.refund(request)
                "reset" -> asynchronous.reset(request)
                "reserve" -> asynchronous.reserve(request, optionsOf(operation))
                "commit" -> asynchronous.commit(request, operation.id(), request.cost)
                "cancel" -> asynchronous.cancel(request, operation.id())
                "renew" -> asynchronous.renew(request, operation.id(), operation.ttl())
                else -> error("$operation is not known")
            }
        }
    }

private fun Face.runAll(
    cases: List<JsonNode>,
    store: String,
): Boolean {
    val started = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now())
    var agreed = 0
    for ((number, case) in cases.withIndex()) {
        val difference = runCase(case, "$name $started $number", store)
        if (difference == null) {
            agreed++
        } else {
            println("$name $store: case ${case["name"]}, operation ${difference.first}: ${difference.second}")
        }
    }
    println("$name $store: $agreed of ${cases.size} cases agree")
    return agreed == cases.size
}

/** Where a case went wrong, and how. The operations after it mean nothing: they build on it. */
private fun Face.runCase(
    case: JsonNode,
    key: String,
    store: String,
): Pair<Int, String>? {
    val clock = ManualClock(0)
    // What the store does not answer must not look as if it did.
    val outage = if (store.startsWith("redis")) "deny" else null
    val policy = Policy("case", quotasOf(case["quotas"]), outage = outage)
    val settings = Settings(if (store == "memory") "memory:" else store, listOf(policy), clock = clock)
    val reservations = mutableListOf<AutoCloseable>()
    Limiter(settings).use { limiter ->
        try {
            for ((at, operation) in case["ops"].withIndex()) {
                clock.set(operation["at_us"].longValue())
                if (operation["op"].asText() == "change") {
                    limiter.setPolicy("case", quotasOf(operation["quotas"]))
                    continue
                }
                val answer =
                    try {
                        limiter.decide(operation, request(key, cost = operation["cost"]?.longValue()))
                    } catch (refused: PolylimitException) {
                        return at to "refused: ${refused.message}"
                    }
                if (answer is AutoCloseable) reservations += answer
                val expected = operation["expect"].properties().associate { (name, value) -> name to value.value() }
                val got = shown(answer, expected)
                if (got != expected) return at to "$operation\n  expected $expected\n  got      $got"
            }
        } finally {
            // A manual clock's keys do not expire.
            limiter.reset(key)
            reservations.forEach(AutoCloseable::close)
        }
    }
    return null
}

private fun JsonNode.value(): Any? =
    when {
        isNull -> null
        isBoolean -> booleanValue()
        else -> longValue()
    }

private fun shown(
    answer: Any,
    expected: Map<String, Any?>,
): Map<String, Any?> =
    when (answer) {
        is Reservation -> shown(answer.decision, expected)
        is AsyncReservation -> shown(answer.decision, expected)
        is Decision ->
            if (answer.isOutage) {
                mapOf("source" to answer.source)
            } else {
                mapOf(
                    "allowed" to answer.allowed,
                    "remaining" to answer.remaining,
                    "retry_after_us" to answer.retryAfter?.us(),
                    "reset_after_us" to answer.resetAfter.us(),
                    "delay_us" to answer.delay.us(),
                    "over" to answer.over,
                ).filterKeys { it != "over" || it in expected } // Only cases of format 2 expect it.
            }
        is Usage ->
            if (answer.isOutage) {
                mapOf("source" to answer.source)
            } else {
                val left = mapOf("remaining" to answer.remaining, "reset_after_us" to answer.resetAfter.us())
                val further = mapOf("taken" to answer.taken, "found" to answer.found, "repeated" to answer.repeated)
                left + further.filterKeys { it in expected }
            }
        else -> error("an operation was answered with $answer")
    }

private fun Duration.us(): Long = seconds * 1_000_000 + nano / 1_000

internal fun quotasOf(quotas: JsonNode): String =
    quotas.joinToString("; ") { numbers ->
        // A quota by the calendar has its text.
        numbers["text"]?.asText() ?: quota(
            QuotaNumbers(
                limit = numbers["limit"].longValue(),
                period = numbers["period_us"]?.let { Duration.of(it.longValue(), ChronoUnit.MICROS) },
                algorithm = numbers["algorithm"].asText(),
                burst = numbers["burst"]?.longValue(),
                step = numbers["step"]?.longValue(),
                buckets = numbers["buckets"]?.longValue(),
                aligned = numbers["aligned"]?.booleanValue(),
                countDenied = numbers["count_denied"]?.booleanValue(),
                excess = numbers["excess"]?.longValue(),
            ),
        )
    }
