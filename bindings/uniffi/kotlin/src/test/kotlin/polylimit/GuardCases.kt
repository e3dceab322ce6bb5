package polylimit

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.ObjectMapper
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.TestFactory
import polylimit.http.KeyPart
import polylimit.http.LimitOptions
import java.io.File
import java.io.InputStream
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.attribute.PosixFilePermissions
import java.time.Duration
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean
import kotlin.concurrent.thread

/**
 * The cases of `guard.json`, `guard_reservations.json`, `guard_meters.json` and `guard_waiting.json` in `tests/conformance`, through the limits of
 * a framework.
 */
abstract class GuardCases<Q, R, S : LimitOptions<Q, R, S>, F> {
    private val client = HttpClient.newHttpClient()

    protected abstract fun options(limiter: Limiter): S

    protected abstract fun limit(options: S): F

    protected abstract fun field(
        request: Q,
        name: String,
    ): String?

    protected abstract fun statusOf(response: R): Int

    protected abstract fun fieldOf(
        response: R,
        name: String,
    ): String?

    protected abstract fun answerDenied(
        options: S,
        status: Int,
        body: String,
    )

    /** Serves a handler that does what [script] says behind the limits, the outermost first. Returns the port and what ends it. */
    protected abstract fun serve(
        limits: List<F>,
        script: Script,
    ): Pair<Int, AutoCloseable>

    /** What the handler does next: it is called with each request. */
    class Script {
        @Volatile var asked: JsonNode? = null

        @Volatile var handled = false

        /** Whether the responses that stay open are to be sent to their ends. */
        val closed = ConcurrentHashMap<String, AtomicBoolean>()

        val status: Int get() = asked?.get("respond")?.asInt() ?: 200
        val pieces: List<String> get() = asked?.get("body")?.map(JsonNode::asText).orEmpty()
        val open: AtomicBoolean? get() = asked?.get("open")?.let { closed.getValue(it.asText()) }

        fun handle() {
            handled = true
            check(asked?.has("fail") != true) { "broken" }
        }

        fun fields(write: (String, String) -> Unit) {
            asked?.get("spent")?.let { write("x-spent", it.asText()) }
            asked?.get("content_type")?.let { write("content-type", it.asText()) }
        }
    }

    @TestFactory
    fun `all cases agree`(): List<DynamicTest> {
        val names = listOf("guard", "guard_reservations", "guard_meters", "guard_waiting")
        val files = names.map { File("../../../tests/conformance/$it.json") }
        val cases = files.flatMap { ObjectMapper().readTree(it)["cases"] }
        assertTrue(cases.size > 60 + 25 + 10)
        return cases.map { case -> DynamicTest.dynamicTest(case["name"].asText()) { run(case) } }
    }

    private fun run(case: JsonNode) {
        val clock = ManualClock(1_789_948_800_000_000)
        val limiters = listOf("memory", "down", "broken").associateWith { limiter(case, it, clock) }
        try {
            val filters = case["guards"].map { guard -> { limit(options(guard, limiters.getValue(storeOf(case, guard)))) } }
            val error = case["error"]?.asText()
            if (error != null) {
                val refused = assertThrows(PolylimitException::class.java) { filters.forEach { it() } }
                return assertEquals(error, refused.code)
            }
            answer(case, filters.map { it() }, limiters.getValue("memory"), clock)
            for (left in case["left"].orEmpty()) {
                val remaining = limiters.getValue("memory").peek(left["key"].asText(), left["policy"].asText()).remaining
                assertEquals(left["remaining"].asLong(), remaining, "$left")
            }
        } finally {
            limiters.values.forEach(Limiter::close)
        }
    }

    private fun storeOf(
        case: JsonNode,
        guard: JsonNode,
    ) = (guard["store"] ?: case["store"])?.asText() ?: "memory"

    private fun limiter(
        case: JsonNode,
        store: String,
        clock: ManualClock,
    ): Limiter {
        val outage = case["outage"]?.asText().takeIf { store == "down" }
        val policies =
            case["policies"]?.properties().orEmpty().map { (name, quotas) -> Policy(name, quotas.asText(), outage = outage) }
        return when (store) {
            "memory" -> Limiter(Settings(policies = policies, clock = clock))
            // Nothing listens on port 1.
            "down" -> Limiter(Settings("redis://127.0.0.1:1?doctor_after=0", policies))
            else -> Limiter(Settings(brokenStore(), policies))
        }
    }

    /** The URL of a local store that cannot be opened: other users may read its file. */
    private fun brokenStore(): String {
        val name = "kotlin-guard-${ProcessHandle.current().pid()}"
        val path = Path.of("/dev/shm/polylimit-${Files.getAttribute(Path.of("/proc/self"), "unix:uid")}-$name")
        if (!Files.exists(path)) Files.createFile(path)
        Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-r-----"))
        return "local:$name"
    }

    private fun texts(value: JsonNode) = if (value.isArray) value.map(JsonNode::asText) else listOf(value.asText())

    private fun options(
        guard: JsonNode,
        limiter: Limiter,
    ): S {
        val options = options(limiter)
        for ((option, value) in guard.properties()) {
            when (option) {
                "policy" -> if (!guard.has("policies_of")) options.policy(*texts(value).toTypedArray())
                "policies_of" ->
                    options.policy { request -> texts(field(request, value["header"].asText())?.let(value["plans"]::get) ?: guard["policy"]) }
                "key" -> options.key { field(it, value["header"].asText()) }
                "key_parts" -> options.key(*texts(value).map(KeyPart::of).toTypedArray())
                "missing_key" -> options.missingKey(value.asText())
                "cost" -> if (value.isNumber) options.cost(value.asLong()) else options.cost { field(it, value["header"].asText())!!.toLong() }
                "costs" -> texts(guard["policy"]).zip(value).forEach { (policy, cost) -> options.cost(policy, cost.asLong()) }
                "spent" -> spent(options, guard, value)
                "ttl_ms" -> options.ttl(Duration.ofMillis(value.asLong()))
                "wait_ms" -> options.wait(Duration.ofMillis(value.asLong()))
                "max_waiting" -> options.maxWaiting(value.asInt())
                "count" -> options.count { _, response -> counts(value, statusOf(response)) }
                "skip" -> options.skip { field(it, value["header"].asText()) != null }
                "methods" -> options.methods(*texts(value).toTypedArray())
                "headers" -> options.headers(value.asText())
                "status" -> options.status(value.asInt())
                "message" -> options.message(value.asText())
                "separate_head" -> options.separateHead(value.asBoolean())
                "cors_origins" -> options.corsOrigins(*texts(value).toTypedArray())
                "dry_run" -> options.dryRun(value.asBoolean())
                "on_denied" -> answerDenied(options, value["status"].asInt(), value["body"].asText())
                "on_outage" -> options.onOutage { mapOf("admit" to true, "deny" to false)[value.asText()] }
                "store" -> Unit
                else -> error(option)
            }
        }
        return options
    }

    private fun counts(
        count: JsonNode,
        status: Int,
    ) = status >= (count["status_from"]?.asInt() ?: 0) && status < (count["status_below"]?.asInt() ?: 1000)

    private fun spent(
        options: S,
        guard: JsonNode,
        value: JsonNode,
    ) {
        when {
            value.isTextual -> options.spentBy(value.asText())
            value.isArray ->
                texts(guard["policy"]).zip(value).filterNot { (_, meter) -> meter.isNull }.forEach { (policy, meter) -> options.spentBy(policy, meter.asText()) }
            else -> options.spent { _, response -> fieldOf(response, value["header"].asText())?.toLong() }
        }
    }

    private fun answer(
        case: JsonNode,
        limits: List<F>,
        limiter: Limiter,
        clock: ManualClock,
    ) {
        val opened = HashMap<String, HttpResponse<InputStream>>()
        val script = Script()
        val (port, server) = serve(limits, script)
        try {
            for (asked in case["requests"]) {
                asked["close"]?.asText()?.let { script.closed.getValue(it).set(true) }
                val ended = asked["close"] ?: asked["leave"]
                if (ended != null) {
                    val body = opened.getValue(ended.asText()).body()
                    if (asked.has("close")) body.readAllBytes()
                    body.close()
                } else {
                    elapsing(asked, clock) { request(asked, script, port) }?.let { opened[asked["open"].asText()] = it }
                }
                for (left in asked["then"].orEmpty()) assertLeft(limiter, left)
            }
        } finally {
            script.closed.values.forEach { it.set(true) }
            server.close()
        }
    }

    /** Lets time pass while a request is under way, so that a guard that holds it does so first. */
    private fun <T> elapsing(
        asked: JsonNode,
        clock: ManualClock,
        send: () -> T,
    ): T {
        val elapse = asked["elapse_ms"]?.let { Duration.ofMillis(it.asLong()) } ?: return send()
        val done = CountDownLatch(1)
        val passing = thread { while (!done.await(100, TimeUnit.MILLISECONDS)) clock.advance(elapse) }
        try {
            return send()
        } finally {
            done.countDown()
            passing.join()
        }
    }

    /** Sends a request and checks its response; returns it where it stays open. */
    private fun request(
        asked: JsonNode,
        script: Script,
        port: Int,
    ): HttpResponse<InputStream>? {
        script.asked = asked
        script.handled = false
        asked["open"]?.let { script.closed[it.asText()] = AtomicBoolean() }
        val builder = HttpRequest.newBuilder(URI("http://127.0.0.1:$port/"))
        builder.method(asked["method"]?.asText() ?: "GET", HttpRequest.BodyPublishers.noBody())
        for ((name, value) in asked["headers"]?.properties().orEmpty()) builder.header(name, value.asText())
        val answer = client.send(builder.build(), HttpResponse.BodyHandlers.ofInputStream())
        val isOpen = asked.has("open") && script.handled
        check(asked["expect"], answer, script.handled) { if (isOpen) "" else answer.body().use { it.readAllBytes().decodeToString() } }
        return if (isOpen) answer else null
    }

    private fun assertLeft(
        limiter: Limiter,
        left: JsonNode,
    ) {
        val remaining = { limiter.peek(left["key"].asText(), left["policy"].asText()).remaining }
        val end = System.nanoTime() + 10_000_000_000
        while (remaining() != left["remaining"].asLong() && System.nanoTime() < end) Thread.sleep(10)
        assertEquals(left["remaining"].asLong(), remaining(), "$left")
    }

    private fun check(
        expect: JsonNode,
        answer: HttpResponse<*>,
        handled: Boolean,
        readBody: () -> String,
    ) {
        val body = readBody()
        for ((what, expected) in expect.properties()) {
            when (what) {
                "status" -> assertEquals(expected.asInt(), answer.statusCode())
                "handled" -> assertEquals(expected.asBoolean(), handled)
                "text" -> assertEquals(expected.asText(), body)
                "fields" ->
                    for ((name, value) in expected.properties()) {
                        val field = answer.headers().firstValue(name).orElse(null)
                        assertEquals(if (value.isNull) null else normal(value.asText()), field?.let(::normal), name)
                    }
                "problem" -> {
                    val problem = ObjectMapper().readTree(body)
                    for ((member, value) in expected.properties()) {
                        assertEquals(value, problem[if (member == "violated") "violated-policies" else member], member)
                    }
                }
                else -> error(what)
            }
        }
    }

    /** A container may write a parameter with another space before it. */
    private fun normal(field: String) = field.replace("; ", ";")

    private fun JsonNode?.orEmpty(): Iterable<JsonNode> = this ?: emptyList()
}
