package polylimit

import jakarta.servlet.Filter
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletRequestWrapper
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.http.KeyPart
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.util.concurrent.CompletableFuture

/** What one filter does with requests. */
class ServletTest : ServletServer() {
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
    fun `fields show what is left after the refund of a response that does not count`() {
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
                    arrayOf("a", "5/hour", "a") to "policy \"a\" is a duplicate: leave out one of the two",
                    arrayOf("5/hour", "5 per 60m") to "policy \"5 per 60m\" is a duplicate: leave out one of the two",
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
}
