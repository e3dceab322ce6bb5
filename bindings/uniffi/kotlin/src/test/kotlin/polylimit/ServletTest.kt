package polylimit

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
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.servlet.OutageEvent
import polylimit.servlet.RateLimit
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.util.EnumSet
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CopyOnWriteArrayList

/** Answers with what is left, and with the status that the path ends with; or throws where the path says so. */
private class Left : HttpServlet() {
    override fun doGet(
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) {
        check(request.pathInfo != "/throws") { "broken" }
        response.status = request.pathInfo.substringAfterLast('/').toIntOrNull() ?: 200
        val decided = request.getAttribute(RateLimitFilter.ATTRIBUTE) as RateLimit?
        response.writer.write("${decided?.decision?.remaining}")
    }
}

class ServletTest {
    private val client = HttpClient.newHttpClient()

    private fun serve(
        vararg all: RateLimitOptions,
        requests: (get: (String, List<Pair<String, String>>) -> HttpResponse<String>) -> Unit,
    ) {
        val server = Server()
        val connector = ServerConnector(server).apply { host = "127.0.0.1" }
        server.addConnector(connector)
        val context = ServletContextHandler()
        context.addServlet(ServletHolder(Left()), "/*")
        for (options in all) context.addFilter(FilterHolder(RateLimitFilter(options)), "/*", EnumSet.of(DispatcherType.REQUEST))
        server.handler = context
        server.start()
        try {
            requests { path, fields -> client.send(get(connector.localPort, path, fields), HttpResponse.BodyHandlers.ofString()) }
        } finally {
            server.stop()
        }
    }

    private fun get(
        port: Int,
        path: String,
        fields: List<Pair<String, String>>,
    ) = HttpRequest.newBuilder(URI("http://127.0.0.1:$port$path")).apply { fields.forEach { header(it.first, it.second) } }.build()

    private fun HttpResponse<*>.field(name: String) = headers().firstValue(name).orElse(null)

    @Test
    fun `exactly the limit passes, and the fields say so`() {
        for (store in LimiterTest.stores()) {
            val quotas = "20/hour fixed_window"
            Limiter.of(mapOf("api${System.nanoTime()}" to quotas), store).use { limiter ->
                serve(RateLimitOptions(limiter).headers("both")) { get ->
                    val answers = List(32) { CompletableFuture.supplyAsync { get("/", emptyList()) } }.map { it.get() }
                    assertEquals(20, answers.count { it.statusCode() == 200 }, store)
                    assertEquals(12, answers.count { it.statusCode() == 429 }, store)
                    val name = limiter.policies.single().name
                    val left = answers.filter { it.statusCode() == 200 }.map { it.body().toInt() }.sorted()
                    assertEquals((0..19).toList(), left, store)
                    for (answer in answers) {
                        assertEquals("\"$name\";q=20;w=3600", answer.field("ratelimit-policy"))
                        assertEquals("20", answer.field("x-ratelimit-limit"))
                        assertEquals(answer.statusCode() == 429, answer.field("retry-after") != null)
                    }
                    val denied = answers.first { it.statusCode() == 429 }
                    assertEquals("application/problem+json", denied.field("content-type"))
                    assertEquals("Accept", denied.field("vary"))
                    assertTrue(denied.body().contains("\"violated-policies\":[\"$name\"]"), denied.body())
                    val text = get("/", listOf("Accept" to "text/plain"))
                    assertTrue(text.field("content-type").startsWith("text/plain"))
                }
            }
        }
    }

    @Test
    fun `several policies and several filters are told together`() {
        Limiter.of(mapOf("a" to "1/hour", "b" to "5/hour", "c" to "9/hour")).use { limiter ->
            serve(RateLimitOptions(limiter).policy("a", "b"), RateLimitOptions(limiter).policy("c")) { get ->
                assertEquals(3, get("/", emptyList()).field("ratelimit-policy").split(", ").size)
                repeat(3) { assertEquals(429, get("/", emptyList()).statusCode()) }
                assertEquals(4L, limiter.peek("127.0.0.1", "b").remaining)
                assertEquals(8L, limiter.peek("127.0.0.1", "c").remaining)
            }
        }
    }

    @Test
    fun `a request may be skipped, cost more, be somebody else's, or not count`() {
        Limiter.of(mapOf("api" to "5/hour")).use { limiter ->
            val options =
                RateLimitOptions(limiter)
                    .skip { it.requestURI == "/free" }
                    .cost { if (it.requestURI == "/dear") 3 else 1 }
                    .key { it.getHeader("user") ?: "nobody" }
                    .count { _, response -> response.status >= 400 }
            serve(options) { get ->
                assertNull(get("/free", emptyList()).field("ratelimit"))
                repeat(9) { assertEquals(200, get("/200", listOf("user" to "a")).statusCode()) }
                assertEquals(5L, limiter.peek("a").remaining)
                assertEquals(401, get("/401", listOf("user" to "a")).statusCode())
                assertEquals(4L, limiter.peek("a").remaining)
                assertEquals("2", get("/dear", listOf("user" to "b")).body())
            }
        }
    }

    @Test
    fun `a denial may be answered otherwise, and proxies are believed when they are trusted`() {
        Limiter.of(mapOf("api" to "1/hour")).use { limiter ->
            val rules = ClientAddressRules(listOf("loopback"), "x-forwarded-for")
            val options =
                RateLimitOptions(limiter).clientAddress(rules).onDenied { denial, _, response ->
                    response.status = 418
                    response.writer.write(denial.problem.detail)
                }
            serve(options) { get ->
                val from = { address: String -> get("/", listOf("X-Forwarded-For" to "192.0.2.1, $address")) }
                assertEquals(200, from("203.0.113.7").statusCode())
                assertEquals(200, from("203.0.113.8").statusCode())
                assertEquals(418, from("203.0.113.7").statusCode())
                assertTrue(from("203.0.113.7").body().startsWith("Not enough of the quota is left"))
            }
        }
    }

    @Test
    fun `an outage is heard of, is 503, and may be let through`() {
        val settings = Settings("redis://127.0.0.1:1?deadline=50ms", listOf(Policy("api", "1/hour", outage = "deny")))
        Limiter(settings).use { limiter ->
            val heard = CopyOnWriteArrayList<OutageEvent>()
            val options =
                RateLimitOptions(limiter).onOutage {
                    heard += it
                    it.request.requestURI == "/important"
                }
            serve(options) { get ->
                assertEquals(503, get("/", emptyList()).statusCode())
                assertEquals(200, get("/important", emptyList()).statusCode())
                assertEquals(listOf("deny", "deny"), heard.map { it.rateLimit?.decision?.source })
            }
        }
    }

    @Test
    fun `what throws counts as what answers 500`() {
        for ((counted, left) in mapOf(500 to 4L, 401 to 5L)) {
            Limiter.of(mapOf("api" to "5/hour")).use { limiter ->
                serve(RateLimitOptions(limiter).key { "k" }.count { _, response -> response.status == counted }) { get ->
                    assertEquals(500, get("/throws", emptyList()).statusCode())
                    assertEquals(left, limiter.peek("k").remaining)
                }
            }
        }
    }

    @Test
    fun `mistakes are refused at once`() {
        Limiter.of(mapOf("a" to "1/hour", "b" to "1/hour")).use { limiter ->
            assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(RateLimitOptions(limiter)) }
            val style = RateLimitOptions(limiter).policy("a").headers("IETF")
            assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(style) }
            val messages =
                mapOf(
                    emptyArray<String>() to "policy is an empty list: allowed is a policy's name",
                    arrayOf("a", "5/hour", "a") to "policy \"a\" is given twice: once is enough",
                )
            for ((policies, message) in messages) {
                val options = RateLimitOptions(limiter).policy(*policies)
                val refused = assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(options) }
                assertTrue(refused.message!!.startsWith(message), refused.message)
            }
        }
    }
}
