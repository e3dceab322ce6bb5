package polylimit

import jakarta.servlet.AsyncContext
import jakarta.servlet.Filter
import jakarta.servlet.http.HttpServletResponse
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.io.IOException
import java.net.Socket
import java.util.concurrent.CompletableFuture
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.TimeUnit
import kotlin.concurrent.thread

/** Requests that reserve until their response is done. */
class ServletHoldTest : ServletServer() {
    private val limiter = Limiter.of(mapOf("model" to "1 concurrent; 100/hour"))

    private fun options() = RateLimitOptions(limiter).key { "k" }.cost(40)

    private fun left() = limiter.peek("k").quotas.map { it.remaining }

    private fun assertSoonLeft(vararg remaining: Long) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (left() != remaining.toList() && System.nanoTime() < end) Thread.sleep(10)
        assertEquals(remaining.toList(), left())
    }

    @Test
    fun `asynchronous request holds until it is complete`() {
        val contexts = LinkedBlockingQueue<AsyncContext>()
        val starting = Filter { request, _, _ -> contexts.add(request.startAsync().apply { timeout = 0 }) }
        serveFilters(RateLimitFilter(options().spent { _, response -> if (response.status == 201) 7 else null }), starting) { get ->
            val answer = CompletableFuture.supplyAsync { get("/", emptyList()) }
            val context = contexts.poll(20, TimeUnit.SECONDS)!!
            assertEquals(listOf(0L, 60L), left())
            (context.response as HttpServletResponse).status = 201
            context.complete()
            assertEquals(201, answer.get().statusCode())
            assertSoonLeft(1, 93)
        }
    }

    @Test
    fun `asynchronous request that is dispatched holds until the servlet has answered`() {
        val contexts = LinkedBlockingQueue<AsyncContext>()
        val starting = Filter { request, _, _ -> contexts.add(request.startAsync().apply { timeout = 0 }) }
        serveFilters(RateLimitFilter(options().spent { _, response -> response.status / 100L }), starting) { get ->
            val answer = CompletableFuture.supplyAsync { get("/404", emptyList()) }
            val context = contexts.poll(20, TimeUnit.SECONDS)!!
            assertEquals(listOf(0L, 60L), left())
            context.dispatch()
            assertEquals(404, answer.get().statusCode())
            assertSoonLeft(1, 96)
        }
    }

    @Test
    fun `asynchronous request that times out has the container's response`() {
        val waiting = Filter { request, _, _ -> request.startAsync().timeout = 200 }
        serveFilters(RateLimitFilter(options().spent { _, response -> response.status / 100L }), waiting) { get ->
            assertEquals(500, get("/", emptyList()).statusCode())
            assertSoonLeft(1, 95)
        }
    }

    @Test
    fun `handler that fails after it has continued asynchronously spends the cost`() {
        val failing =
            Filter { request, _, _ ->
                // Jetty responds when this has elapsed, whether there are filters or not.
                request.startAsync().timeout = 200
                error("broken")
            }
        serveFilters(RateLimitFilter(options().spent { _, _ -> error("it is not called") }), failing) { get ->
            assertEquals(500, get("/", emptyList()).statusCode())
            assertSoonLeft(1, 60)
        }
    }

    @Test
    fun `asynchronous request whose client has gone has spent what the response says`() {
        val writing =
            Filter { request, _, _ ->
                val context = request.startAsync().apply { timeout = 0 }
                thread {
                    assertThrows(IOException::class.java) {
                        while (true) {
                            context.response.outputStream.write("part".encodeToByteArray())
                            context.response.flushBuffer()
                            Thread.sleep(10)
                        }
                    }
                    context.complete()
                }
            }
        serveFilters(RateLimitFilter(options().spent { _, _ -> 7 }), writing) { _ ->
            Socket("127.0.0.1", port).use {
                it.outputStream.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n".encodeToByteArray())
                assertEquals('H'.code, it.inputStream.read())
                assertEquals(listOf(0L, 60L), left())
            }
            assertSoonLeft(1, 93)
        }
    }

    @Test
    fun `handler that throws spends the cost`() =
        serve(options().spent { _, _ -> error("it is not called") }) { get ->
            assertEquals(500, get("/throws", emptyList()).statusCode())
            assertSoonLeft(1, 60)
        }

    @Test
    fun `outer filter holds around an inner one`() {
        val slots = Limiter.of(mapOf("slots" to "1 concurrent"))
        val between =
            Filter { request, response, chain ->
                chain.doFilter(request, response)
                assertEquals(listOf(0L, 60L), left())
            }
        serveFilters(RateLimitFilter(options().spent { _, _ -> 7 }), between, RateLimitFilter(RateLimitOptions(slots))) { get ->
            val answer = get("/200", emptyList())
            assertEquals(200, answer.statusCode())
            assertTrue("\"slots\";r=0" in answer.field("ratelimit").orEmpty())
            assertSoonLeft(1, 93)
            assertEquals(1L, slots.peek("127.0.0.1").remaining)
        }
    }

    @Test
    fun `check holds until it is ended or closed`() {
        val guard = limiter.guard(GuardOptions(cost = 40))
        val facts = GuardFacts(key = "k".encodeToByteArray(), peer = "192.0.2.1")
        val check = guard.decide(facts).check
        assertTrue(check.holds)
        assertThrows(PolylimitException.InvalidArgument::class.java) { check.end(-1) }
        assertFalse(check.holds)
        check.end(5)
        assertEquals(listOf(1L, 60L), left())
        assertEquals(listOf(0L, 60L), check.decisions().single().quotas.map { it.remaining })
        guard.decide(facts).check.close()
        assertEquals(listOf(1L, 20L), left())
    }

    @Test
    fun `check that nothing refers to is ended by the garbage collector`() {
        assertTrue(limiter.guard(GuardOptions()).decide(GuardFacts(key = "k".encodeToByteArray(), peer = "192.0.2.1")).check.holds)
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (left().first() == 0L && System.nanoTime() < end) {
            System.gc()
            Thread.sleep(10)
        }
        assertEquals(listOf(1L, 99L), left())
    }
}
