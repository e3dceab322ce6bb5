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
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.attribute.PosixFilePermissions
import java.util.EnumSet

/** The cases of `tests/conformance/guard.json`, through the filter in Jetty. */
class GuardCasesTest {
    private val client = HttpClient.newHttpClient()

    @TestFactory
    fun `all cases agree`(): List<DynamicTest> {
        val cases = ObjectMapper().readTree(File("../../../tests/conformance/guard.json"))["cases"]
        assertTrue(cases.size() > 60)
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
            answer(case, filters.map { it() })
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
                "count" -> options.count { _, response -> counts(value, response.status) }
                "skip" -> options.skip { it.getHeader(value["header"].asText()) != null }
                "methods" -> options.methods(*texts(value).toTypedArray())
                "headers" -> options.headers(value.asText())
                "header_names" -> options.headerNames(value.properties().associate { it.key to it.value.asText() })
                "reset_form" -> options.resetForm(value.asText())
                "status" -> options.status(value.asInt())
                "message" -> options.message(value.asText())
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
        }
    }

    private fun answer(
        case: JsonNode,
        filters: List<RateLimitFilter>,
    ) {
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
                handler.asked = asked
                handler.handled = false
                val builder = HttpRequest.newBuilder(URI("http://127.0.0.1:${connector.localPort}/"))
                builder.method(asked["method"]?.asText() ?: "GET", HttpRequest.BodyPublishers.noBody())
                for ((name, value) in asked["headers"]?.properties().orEmpty()) builder.header(name, value.asText())
                check(asked["expect"], client.send(builder.build(), HttpResponse.BodyHandlers.ofString()), handler.handled)
            }
        } finally {
            server.stop()
        }
    }

    private fun check(
        expect: JsonNode,
        answer: HttpResponse<String>,
        handled: Boolean,
    ) {
        for ((what, expected) in expect.properties()) {
            when (what) {
                "status" -> assertEquals(expected.asInt(), answer.statusCode())
                "handled" -> assertEquals(expected.asBoolean(), handled)
                "text" -> assertEquals(expected.asText(), answer.body())
                "fields" ->
                    for ((name, value) in expected.properties()) {
                        val field = answer.headers().firstValue(name).orElse(null)
                        assertEquals(if (value.isNull) null else normal(value.asText()), field?.let(::normal), name)
                    }
                "problem" -> {
                    val problem = ObjectMapper().readTree(answer.body())
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
