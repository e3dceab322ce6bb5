package polylimit

import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions

/** A filter whose limits come from the configuration of its limiter. */
class ServletConfigurationTest : ServletServer() {
    private val limiter = Limiter(Settings(document = DOCUMENT))

    private val mine = listOf("X-Api-Key" to "k1")

    @Test
    fun `the rules decide`() =
        serve(RateLimitOptions(limiter)) { get ->
            assertEquals(listOf(200, 200, 429, 429), List(4) { get("/v1/items?page=2", mine).statusCode() })
            val allowed = get("/v1/items", listOf("X-Api-Key" to "k2"))
            assertEquals("\"api\";q=2;w=3600", allowed.field("ratelimit-policy"))
            assertEquals("1", allowed.body())
            assertNull(get("/other", mine).field("ratelimit-policy"))
            assertEquals(400, get("/users/", mine).statusCode())
        }

    @Test
    fun `attributes of the application decide`() =
        serve(RateLimitOptions(limiter).attributes { mapOf("user" to it.getHeader("X-User")) }) { get ->
            assertEquals(listOf(200, 200, 429), List(3) { get("/users/200", listOf("X-User" to "alice")).statusCode() })
            val denied = get("/users/", listOf("X-User" to "mallory"))
            assertEquals(403, denied.statusCode())
            assertNull(denied.field("ratelimit-policy"))
        }

    @Test
    fun `a response that does not count gives back, and a request holds`() =
        serve(RateLimitOptions(limiter).count { _, response -> response.status < 500 }) { get ->
            assertEquals(listOf(500, 500, 500), List(3) { get("/v1/500", mine).statusCode() })
            assertEquals(listOf(200, 200, 429), List(3) { get("/v1/", mine).statusCode() })
            assertEquals(listOf(200, 200), List(2) { get("/jobs", mine).statusCode() })
        }

    @Test
    fun `a rule charges what the response reports`() {
        val model =
            object : HttpServlet() {
                override fun service(
                    request: HttpServletRequest,
                    response: HttpServletResponse,
                ) {
                    response.contentType = "application/json"
                    response.writer.print("{\"usage\": {\"prompt_tok")
                    response.writer.write("ens\": 5, \"completion_tokens\": 2}}".toCharArray())
                }
            }
        serveRaw(model, "/*", listOf(RateLimitFilter(RateLimitOptions(limiter)) to "/*")) { send ->
            for (left in listOf(93L, 86L)) {
                assertEquals("HTTP/1.1 200 OK", send("GET /model", emptyList()).first())
                awaitLeft(left)
            }
        }
    }

    /** A request ends after its client has read the response. */
    private fun awaitLeft(left: Long) {
        val end = System.nanoTime() + 20_000_000_000
        val remaining = { limiter.peek("127.0.0.1", "tokens").remaining }
        while (remaining() != left && System.nanoTime() < end) Thread.sleep(1)
        assertEquals(left, remaining())
    }

    @Test
    fun `options in addition to a configuration are refused`() {
        val others = listOf(RateLimitOptions(limiter).key { "k" }, RateLimitOptions(limiter).cost(2), RateLimitOptions(limiter).scope("/x"))
        val without = RateLimitOptions(Limiter.of(mapOf("api" to "1/s"))).attributes { null }
        for (options in others + without) {
            assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(options) }
        }
        RateLimitFilter(RateLimitOptions(limiter).policy("api").key { "k" })
    }

    private companion object {
        val DOCUMENT =
            """
            polylimit = 1
            [policies.api]
            quotas = "2/hour fixed_window"
            [policies.jobs]
            quotas = "1 concurrent"
            [[rules]]
            match = { path = "/v1/{*rest}", header.x-api-key = "*" }
            apply = [{ policy = "api", key = "{header.x-api-key}" }]
            [[rules]]
            match = { path = "/users/{*rest}" }
            apply = [{ policy = "api", key = "{user}", missing = "deny" }]
            [policies.tokens]
            quotas = "100/hour fixed_window"
            [[rules]]
            match = { path = "/model" }
            apply = [{ policy = "tokens", key = "{client}", cost = 60, spent = "usage:total" }]
            [[rules]]
            match = { path = "/jobs", method = "GET" }
            apply = [{ policy = "jobs", key = "{client}" }]
            [lists]
            deny = ["user mallory"]
            """.trimIndent()
    }
}
