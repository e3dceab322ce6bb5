package polylimit

import jakarta.servlet.DispatcherType
import jakarta.servlet.Filter
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletRequestWrapper
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
import polylimit.servlet.KeyPart
import polylimit.servlet.OutageEvent
import polylimit.servlet.RateLimit
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.net.SocketException
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.util.EnumSet
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CopyOnWriteArrayList
import kotlin.concurrent.thread

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
    ) = serveFilters(*Array(all.size) { RateLimitFilter(all[it]) }, requests = requests)

    private fun serveFilters(
        vararg all: Filter,
        requests: (get: (String, List<Pair<String, String>>) -> HttpResponse<String>) -> Unit,
    ) {
        val server = Server()
        val connector = ServerConnector(server).apply { host = "127.0.0.1" }
        server.addConnector(connector)
        val context = ServletContextHandler()
        context.addServlet(ServletHolder(Left()).apply { isAsyncSupported = true }, "/*")
        for (filter in all) context.addFilter(FilterHolder(filter).apply { isAsyncSupported = true }, "/*", EnumSet.of(DispatcherType.REQUEST))
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
    fun `exactly the limit passes and header fields show it`() {
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
                    assertEquals("accept", denied.field("vary"))
                    assertTrue(denied.body().contains("\"violated-policies\":[\"$name\"]"), denied.body())
                    val text = get("/", listOf("Accept" to "text/plain"))
                    assertTrue(text.field("content-type").startsWith("text/plain"))
                }
            }
        }
    }

    @Test
    fun `header fields of several policies and filters are merged`() {
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
    fun `skip, cost, key and count apply to each request`() {
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
    fun `fields tell what is left after the refund of a response that does not count`() {
        Limiter.of(mapOf("api" to "5/hour fixed_window", "out" to "9/hour fixed_window")).use { limiter ->
            val uncounted = RateLimitOptions(limiter).policy("api").count { _, response -> response.status >= 400 }
            val counted = RateLimitOptions(limiter).policy("out")
            for ((at, filters) in listOf(listOf(uncounted, counted), listOf(counted, uncounted)).withIndex()) {
                serve(*filters.toTypedArray()) { get ->
                    val fields = get("/200", emptyList()).field("ratelimit").orEmpty()
                    assertTrue("\"api\";r=5" in fields && "\"out\";r=${8 - at}" in fields, fields)
                }
            }
            serve(uncounted) { get -> assertTrue("\"api\";r=4" in get("/401", emptyList()).field("ratelimit").orEmpty()) }
        }
    }

    @Test
    fun `onDenied makes the response and trusted proxies name the client`() {
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
    fun `outage responds with 503 unless onOutage allows the request`() {
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

    /** A limiter that knows of one unit of "k" that was used before the store was lost. */
    private fun lost(name: String): Limiter {
        val policies = listOf(Policy(name, "1/hour", outage = "fallback"))
        return Limiter(Settings("redis://127.0.0.1:1?deadline=50ms", policies)).also { assertTrue(it.check("k").allowed) }
    }

    @Test
    fun `overruled outage denial spends and refunds nothing`() {
        lost("api").use { limiter ->
            serve(RateLimitOptions(limiter).key { "k" }.count { _, _ -> false }.onOutage { true }) { get ->
                assertEquals(200, get("/", emptyList()).statusCode())
                assertEquals(0L, limiter.peek("k").remaining)
            }
        }
    }

    @Test
    fun `overruled denial is in the decisions, and hidden from the client`() {
        val inner = Limiter.of(mapOf("in" to "3/hour"))
        val lost = lost("out")
        val outer = RateLimitOptions(lost).key { "k" }.onOutage { true }
        serve(outer, RateLimitOptions(inner)) { get ->
            val answer = get("/", emptyList())
            assertEquals(200, answer.statusCode())
            assertEquals("0", answer.body())
            assertEquals("\"in\";q=3;w=3600", answer.field("ratelimit-policy"))
            assertEquals("on_outage", answer.field("x-ratelimit-outage"))
            assertNull(answer.field("retry-after"))
            assertEquals(2L, inner.peek("127.0.0.1").remaining)
        }
        serve(outer) { get ->
            val answer = get("/", emptyList())
            assertEquals(200, answer.statusCode())
            assertNull(answer.field("ratelimit"))
            assertNull(answer.field("retry-after"))
        }
        lost.close()
        inner.close()
    }

    /** A store that is reached over one connection, until it is cut. */
    private class ReachedOnce {
        private val server = ServerSocket(0, 1, InetAddress.getLoopbackAddress())
        private val ends = CopyOnWriteArrayList<Socket>()
        val url = "redis://127.0.0.1:${server.localPort}?deadline=1s&denial_cache_max=1h"

        init {
            val store = URI(System.getenv("POLYLIMIT_REDIS"))
            thread(isDaemon = true) {
                val here = server.use { it.accept() }
                val there = Socket(store.host, store.port)
                ends += listOf(here, there)
                for ((from, to) in listOf(here to there, there to here)) thread(isDaemon = true) { copy(from, to) }
            }
        }

        fun cut() = ends.forEach(Socket::close)

        private fun copy(
            from: Socket,
            to: Socket,
        ) {
            try {
                from.getInputStream().transferTo(to.getOutputStream())
            } catch (_: SocketException) {
                // It is cut.
            }
        }
    }

    @Test
    fun `onOutage does not overrule a denial of the store`() {
        val store = ReachedOnce()
        val policies = listOf(Policy("a", "0/hour", outage = "deny"), Policy("b", "5/hour", outage = "deny"))
        Limiter(Settings(store.url, policies)).use { limiter ->
            val heard = CopyOnWriteArrayList<List<String>?>()
            val options =
                RateLimitOptions(limiter).policy("a", "b").onOutage { event ->
                    heard += event.rateLimit?.outcomes?.map { it.decision.source }
                    true
                }
            serve(options) { get ->
                assertEquals("store", limiter.check("127.0.0.1", "a").source)
                store.cut()
                assertEquals(429, get("/", emptyList()).statusCode())
                assertEquals(listOf(listOf("denial_cache", "deny")), heard)
            }
        }
    }

    @Test
    fun `outer filters refund once when an inner one denies`() {
        val inner = Limiter.of(mapOf("in" to "0/hour"))
        Limiter.of(mapOf("out" to "9/hour", "between" to "9/hour")).use { limiter ->
            for (policy in listOf("out", "between")) limiter.check("127.0.0.1", policy, 5)
            val outer = RateLimitOptions(limiter).policy("out").count { _, _ -> false }
            serve(outer, RateLimitOptions(limiter).policy("between").cost(2), RateLimitOptions(inner)) { get ->
                assertEquals(429, get("/", emptyList()).statusCode())
                for (policy in listOf("out", "between")) assertEquals(4L, limiter.peek("127.0.0.1", policy).remaining, policy)
            }
        }
    }

    @Test
    fun `error of an inner filter is a response of status 500, which count decides about`() {
        val inner = Limiter.of(mapOf("in" to "1/hour"))
        Limiter.of(mapOf("out" to "9/hour", "between" to "9/hour")).use { limiter ->
            val outer = RateLimitOptions(limiter).policy("out").count { _, response -> response.status < 500 }
            serve(outer, RateLimitOptions(limiter).policy("between").cost { 2 }, RateLimitOptions(inner)) { get ->
                inner.close()
                assertEquals(500, get("/", emptyList()).statusCode())
                assertEquals(listOf(9L, 7L), listOf("out", "between").map { limiter.peek("127.0.0.1", it).remaining })
            }
        }
    }

    @Test
    fun `peer without an address counts as this host`() {
        for (address in listOf(null, "")) {
            val unix =
                Filter { request, response, chain ->
                    val from =
                        object : HttpServletRequestWrapper(request as HttpServletRequest) {
                            override fun getRemoteAddr() = address
                        }
                    chain.doFilter(from, response)
                }
            Limiter.of(mapOf("api" to "9/hour")).use { limiter ->
                serveFilters(unix, RateLimitFilter(RateLimitOptions(limiter))) { get ->
                    assertEquals(200, get("/", emptyList()).statusCode())
                    assertEquals(8L, limiter.peek("127.0.0.1").remaining)
                }
            }
        }
    }

    @Test
    fun `handler that throws counts as status 500`() {
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
    fun `invalid options are refused when the filter is built`() {
        Limiter.of(mapOf("a" to "1/hour", "b" to "1/hour")).use { limiter ->
            assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(RateLimitOptions(limiter)) }
            val style = RateLimitOptions(limiter).policy("a").headers("IETF")
            assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(style) }
            val messages =
                mapOf(
                    emptyArray<String>() to "policy is an empty list: allowed is a policy's name",
                    arrayOf("a", "5/hour", "a") to "policy \"a\" is given twice: once is enough",
                    arrayOf("5/hour", "5 per 60m") to "policy \"5 per 60m\" is given twice: once is enough",
                    arrayOf("apy") to "policy \"apy\" is not known: this limiter has a, b",
                    arrayOf("100/minut") to "quota ",
                )
            for ((policies, message) in messages) {
                val options = RateLimitOptions(limiter).policy(*policies)
                val refused = assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(options) }
                assertTrue(refused.message!!.startsWith(message), refused.message)
            }
        }
    }

    @Test
    fun `request without a key counts for its address`() {
        Limiter.of(mapOf("api" to "5/hour")).use { limiter ->
            serve(RateLimitOptions(limiter).key { it.getHeader("user") }) { get ->
                assertEquals(200, get("/", emptyList()).statusCode())
                assertEquals(4L, limiter.peek("127.0.0.1").remaining)
                assertEquals(200, get("/", listOf("user" to "42")).statusCode())
                assertEquals(4L, limiter.peek("42").remaining)
            }
        }
    }

    @Test
    fun `unnamed quotas have separate states in each scope`() {
        Limiter.of(mapOf("api" to "9/hour")).use { limiter ->
            val left = { policy: String, scope: String? ->
                val options = RateLimitOptions(limiter).policy(policy).apply { scope?.let(::scope) }
                var body = ""
                serve(options) { get -> body = get("/", emptyList()).body() }
                body
            }
            assertEquals("4", left("5/hour", "/login"))
            assertEquals("4", left("5/hour", "/search"))
            assertEquals("4", left("5/hour", null))
            assertEquals("3", left("5 per hour", "/login"))
            // One that has a name is shared.
            assertEquals(listOf("8", "7"), listOf("/login", "/search").map { left("api", it) })
            assertThrows(PolylimitException.InvalidArgument::class.java) { left("5/hour", "") }
        }
    }

    @Test
    fun `policy and key are charged once a request`() {
        Limiter.of(mapOf("a" to "9/hour", "b" to "9/hour")).use { limiter ->
            val outer = RateLimitOptions(limiter).policy("a", "5/hour")
            val inner = RateLimitOptions(limiter).policy("b", "a").count { _, _ -> false }
            serve(outer, inner, RateLimitOptions(limiter).policy("5 per 60m").cost { 4 }) { get ->
                val answer = get("/", emptyList())
                assertEquals(200, answer.statusCode())
                assertEquals("1", answer.body())
                // Of several costs the highest is charged; what only the filter relied on that does not count is refunded.
                assertEquals(listOf(8L, 9L, 1L), listOf("a", "b", "5/hour").map { limiter.peek("127.0.0.1", it).remaining })
            }
            serve(RateLimitOptions(limiter).policy("a"), RateLimitOptions(limiter).policy("a").key { "another" }) { get ->
                assertEquals(200, get("/", emptyList()).statusCode())
                assertEquals(listOf(7L, 8L), listOf("127.0.0.1", "another").map { limiter.peek(it, "a").remaining })
            }
        }
    }

    @Test
    fun `denial of an inner filter includes the refund`() {
        Limiter.of(mapOf("out" to "2/hour fixed_window", "in" to "0/hour")).use { limiter ->
            serve(RateLimitOptions(limiter).policy("out"), RateLimitOptions(limiter).policy("in")) { get ->
                val denied = get("/", emptyList())
                assertEquals(429, denied.statusCode())
                assertTrue(denied.field("ratelimit").contains("\"out\";r=2"), denied.field("ratelimit"))
            }
        }
    }

    @Test
    fun `key has the parts of the request`() {
        val user =
            Filter { request, response, chain ->
                val known =
                    object : HttpServletRequestWrapper(request as HttpServletRequest) {
                        override fun getRemoteUser() = "ann"
                    }
                request.setAttribute("org.springframework.web.servlet.HandlerMapping.uriTemplateVariables", mapOf("team" to "blue"))
                chain.doFilter(known, response)
            }
        Limiter.of(mapOf("api" to "5/hour")).use { limiter ->
            val keys =
                mapOf(
                    arrayOf(KeyPart.address()) to "127.0.0.1",
                    arrayOf(KeyPart.user(), KeyPart.address()) to "user:ann|127.0.0.1",
                    arrayOf(KeyPart.path("team"), KeyPart.cookie("a")) to "path:team:blue|cookie:a:b",
                    arrayOf(KeyPart.header("X-Tag")) to "x-tag:one, two",
                )
            for ((parts, key) in keys) {
                serveFilters(user, RateLimitFilter(RateLimitOptions(limiter).key(*parts))) { get ->
                    assertEquals(200, get("/", listOf("cookie" to "c=d; a=b", "x-tag" to "one", "x-tag" to "two")).statusCode())
                    assertEquals(4L, limiter.peek(key).remaining, key)
                }
            }
            val own = RateLimitOptions(limiter).key(KeyPart.path("id")).pathParameters { mapOf("id" to it.pathInfo.drop(1)) }
            serve(own) { get ->
                assertEquals(200, get("/200", emptyList()).statusCode())
                assertEquals(4L, limiter.peek("path:id:200").remaining)
            }
        }
    }

    @Test
    fun `denial of an inner filter removes the field of an outage`() {
        val lost = Limiter(Settings("redis://127.0.0.1:1?deadline=50ms", listOf(Policy("out", "1/hour", outage = "allow"))))
        Limiter.of(mapOf("in" to "0/hour")).use { limiter ->
            serve(RateLimitOptions(lost), RateLimitOptions(limiter)) { get ->
                val denied = get("/", emptyList())
                assertEquals(429, denied.statusCode())
                assertNull(denied.field("x-ratelimit-outage"))
            }
            serve(RateLimitOptions(lost)) { get -> assertEquals("allow", get("/", emptyList()).field("x-ratelimit-outage")) }
        }
        lost.close()
    }

    @Test
    fun `asynchronous request is counted when it is complete`() {
        Limiter.of(mapOf("out" to "5/hour", "in" to "5/hour")).use { limiter ->
            val later =
                Filter { request, _, _ ->
                    val context = request.startAsync()
                    thread {
                        (context.response as HttpServletResponse).status = 401
                        context.complete()
                    }
                }
            val filters = mapOf("out" to 401, "in" to 200).map { (policy, status) ->
                RateLimitFilter(RateLimitOptions(limiter).policy(policy).key { "k" }.count { _, response -> response.status == status })
            }
            serveFilters(*filters.toTypedArray(), later) { get ->
                assertEquals(401, get("/", emptyList()).statusCode())
                // The container tells its listeners after it has responded.
                val ends = System.nanoTime() + 30_000_000_000
                while (limiter.peek("k", "in").remaining != 5L && System.nanoTime() < ends) Thread.sleep(5)
                assertEquals(listOf(4L, 5L), listOf("out", "in").map { limiter.peek("k", it).remaining })
            }
        }
    }
}
