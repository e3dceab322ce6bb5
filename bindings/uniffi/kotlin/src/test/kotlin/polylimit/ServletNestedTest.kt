package polylimit

import jakarta.servlet.Filter
import jakarta.servlet.http.HttpServletResponse
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import kotlin.concurrent.thread

/** What several filters on one request do, and requests that continue asynchronously. */
class ServletNestedTest : ServletServer() {
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
                // The container calls its listeners after it has responded.
                val ends = System.nanoTime() + 30_000_000_000
                while (limiter.peek("k", "in").remaining != 5L && System.nanoTime() < ends) Thread.sleep(5)
                assertEquals(listOf(4L, 5L), listOf("out", "in").map { limiter.peek("k", it).remaining })
            }
        }
    }
}
