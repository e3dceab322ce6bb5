package polylimit

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.ObjectMapper
import jakarta.servlet.DispatcherType
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.eclipse.jetty.ee10.servlet.FilterHolder
import org.eclipse.jetty.ee10.servlet.ServletContextHandler
import org.eclipse.jetty.ee10.servlet.ServletHolder
import org.eclipse.jetty.server.Server
import org.eclipse.jetty.server.ServerConnector
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest
import org.junit.jupiter.api.TestFactory
import polylimit.http.KeyPart
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
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
import java.util.EnumSet
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean

/** The cases of `guard.json`, `guard_reservations.json` and `guard_meters.json` in `tests/conformance`, through the filter in Jetty. */
class GuardCasesTest {
    private val client = HttpClient.newHttpClient()

    @TestFactory
    fun `all cases agree`(): List<DynamicTest> {
        val files = listOf("guard.json", "guard_reservations.json", "guard_meters.json").map { File("../../../tests/conformance/$it") }
        val cases = files.flatMap { ObjectMapper().readTree(it)["cases"] }
        assertTrue(cases.size > 60 + 25 + 10)
        return cases.map { case -> DynamicTest.dynamicTest(case["name"].asText()) { run(case) } }
    }

    private fun run(case: JsonNode) {
        val limiters = listOf("memory", "down", "broken").associateWith { limiter(case, it) }
        try {
            val filters = case["guards"].map { guard -> { RateLimitFilter(options(guard, limiters.getValue(storeOf(case, guard)))) } }
            val error = case["error"]?.asText()
            if (error != null) {
                val refused = assertThrows(PolylimitException::class.java) { filters.forEach { it() } }
                return assertEquals(error, refused.code)
            }
            answer(case, filters.map { it() }, limiters.getValue("memory"))
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
    ): Limiter {
        val outage = case["outage"]?.asText().takeIf { store == "down" }
        val policies =
            case["policies"]?.properties().orEmpty().map { (name, quotas) -> Policy(name, quotas.asText(), outage = outage) }
        return when (store) {
            "memory" -> Limiter(Settings(policies = policies, clock = ManualClock(1_789_948_800_000_000)))
            // Nothing listens on port 1.
            "down" -> Limiter(Settings("redis://127.0.0.1:1?doctor_after=0", policies))
            else -> Limiter(Settings(brokenStore(), policies))
        }
    }

    /** The URL of a shared-file store that cannot be opened: other users may read its file. */
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
    ): RateLimitOptions {
        val options = RateLimitOptions(limiter)
        for ((option, value) in guard.properties()) {
            when (option) {
                "policy" -> if (!guard.has("policies_of")) options.policy(*texts(value).toTypedArray())
                "policies_of" ->
                    options.policy { request -> texts(request.getHeader(value["header"].asText())?.let(value["plans"]::get) ?: guard["policy"]) }
                "key" -> options.key { it.getHeader(value["header"].asText()) }
                "key_parts" -> options.key(*texts(value).map(KeyPart::of).toTypedArray())
                "missing_key" -> options.missingKey(value.asText())
                "cost" -> if (value.isNumber) options.cost(value.asLong()) else options.cost { it.getHeader(value["header"].asText()).toLong() }
                "costs" -> texts(guard["policy"]).zip(value).forEach { (policy, cost) -> options.cost(policy, cost.asLong()) }
                "spent" -> spent(options, guard, value)
                "ttl_ms" -> options.ttl(Duration.ofMillis(value.asLong()))
                "count" -> options.count { _, response -> counts(value, response.status) }
                "skip" -> options.skip { it.getHeader(value["header"].asText()) != null }
                "methods" -> options.methods(*texts(value).toTypedArray())
                "headers" -> options.headers(value.asText())
                "status" -> options.status(value.asInt())
                "message" -> options.message(value.asText())
                "separate_head" -> options.separateHead(value.asBoolean())
                "cors_origins" -> options.corsOrigins(*texts(value).toTypedArray())
                "dry_run" -> options.dryRun(value.asBoolean())
                "on_denied" ->
                    options.onDenied { _, _, response ->
                        response.status = value["status"].asInt()
                        response.writer.write(value["body"].asText())
                    }
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
        options: RateLimitOptions,
        guard: JsonNode,
        value: JsonNode,
    ) {
        when {
            value.isTextual -> options.spentBy(value.asText())
            value.isArray ->
                texts(guard["policy"]).zip(value).filterNot { (_, meter) -> meter.isNull }.forEach { (policy, meter) -> options.spentBy(policy, meter.asText()) }
            else -> options.spent { _, response -> response.getHeader(value["header"].asText())?.toLong() }
        }
    }

    /** Answers as the request says, and remembers that it was called. */
    private class Handler : HttpServlet() {
        @Volatile var asked: JsonNode? = null

        @Volatile var handled = false

        override fun service(
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            handled = true
            check(asked?.has("fail") != true) { "broken" }
            response.status = asked?.get("respond")?.asInt() ?: 200
            asked?.get("spent")?.let { response.setHeader("x-spent", it.asText()) }
            asked?.get("content_type")?.let { response.contentType = it.asText() }
            asked?.get("body")?.forEach { piece -> write(response, piece.asText()) }
            asked?.get("open")?.let { name -> stayOpen(response, closed.getValue(name.asText())) }
        }

        /** Writes a piece of the body: by the writer if it is the only one, and otherwise by the stream. */
        private fun write(
            response: HttpServletResponse,
            piece: String,
        ) = if (asked!!["body"].size() == 1) response.writer.print(piece) else response.outputStream.write(piece.encodeToByteArray())

        /** Whether the responses that stay open are to be sent to their ends. */
        val closed = ConcurrentHashMap<String, AtomicBoolean>()

        /** Sends a part of the body, and more of them until this is all or the client has gone. */
        private fun stayOpen(
            response: HttpServletResponse,
            isClosed: AtomicBoolean,
        ) {
            do {
                response.outputStream.write("part".encodeToByteArray())
                response.flushBuffer()
                Thread.sleep(10)
            } while (!isClosed.get())
        }
    }

    private fun answer(
        case: JsonNode,
        filters: List<RateLimitFilter>,
        limiter: Limiter,
    ) {
        val opened = HashMap<String, HttpResponse<InputStream>>()
        val handler = Handler()
        val context = ServletContextHandler()
        context.addServlet(ServletHolder(handler), "/*")
        for (filter in filters) context.addFilter(FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST))
        val server = Server()
        val connector = ServerConnector(server).apply { host = "127.0.0.1" }
        server.addConnector(connector)
        server.handler = context
        server.start()
        try {
            for (asked in case["requests"]) {
                asked["close"]?.asText()?.let { handler.closed.getValue(it).set(true) }
                val ended = asked["close"] ?: asked["leave"]
                if (ended != null) {
                    val body = opened.getValue(ended.asText()).body()
                    if (asked.has("close")) body.readAllBytes()
                    body.close()
                } else {
                    request(asked, handler, connector.localPort)?.let { opened[asked["open"].asText()] = it }
                }
                for (left in asked["then"].orEmpty()) assertLeft(limiter, left)
            }
        } finally {
            handler.closed.values.forEach { it.set(true) }
            server.stop()
        }
    }

    /** Sends a request and checks its response; returns it where it stays open. */
    private fun request(
        asked: JsonNode,
        handler: Handler,
        port: Int,
    ): HttpResponse<InputStream>? {
        handler.asked = asked
        handler.handled = false
        asked["open"]?.let { handler.closed[it.asText()] = AtomicBoolean() }
        val builder = HttpRequest.newBuilder(URI("http://127.0.0.1:$port/"))
        builder.method(asked["method"]?.asText() ?: "GET", HttpRequest.BodyPublishers.noBody())
        for ((name, value) in asked["headers"]?.properties().orEmpty()) builder.header(name, value.asText())
        val answer = client.send(builder.build(), HttpResponse.BodyHandlers.ofInputStream())
        val isOpen = asked.has("open") && handler.handled
        check(asked["expect"], answer, handler.handled) { if (isOpen) "" else answer.body().use { it.readAllBytes().decodeToString() } }
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
