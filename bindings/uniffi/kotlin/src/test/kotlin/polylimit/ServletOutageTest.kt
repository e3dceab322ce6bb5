package polylimit

import jakarta.servlet.http.HttpServletRequest
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.http.OutageEvent
import polylimit.servlet.RateLimitOptions
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.net.SocketException
import java.net.URI
import java.util.concurrent.CopyOnWriteArrayList
import kotlin.concurrent.thread

/** What filters do while the store is out of reach. */
class ServletOutageTest : ServletServer() {
    @Test
    fun `outage responds with 503 unless onOutage allows the request`() {
        val settings = Settings("redis://127.0.0.1:1?deadline=50ms", listOf(Policy("api", "1/hour", outage = "deny")))
        Limiter(settings).use { limiter ->
            val heard = CopyOnWriteArrayList<OutageEvent<HttpServletRequest>>()
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
}
