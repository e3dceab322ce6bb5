package polylimit

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.BeforeEach
import org.junit.jupiter.api.Test
import java.lang.ref.WeakReference
import java.time.Duration
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.TimeUnit
import java.util.function.Consumer
import java.util.logging.Handler
import java.util.logging.Level
import java.util.logging.LogRecord
import java.util.logging.Logger

/** A limiter reports when it begins and when it ceases to decide without its store, and what its doctor finds. */
class EventsTest {
    private val logger = Logger.getLogger("polylimit")
    private val lines = CopyOnWriteArrayList<Pair<Level, String>>()
    private val thrown = CopyOnWriteArrayList<String?>()
    private val events = CopyOnWriteArrayList<DegradedEvent>()
    private val handler =
        object : Handler() {
            override fun publish(record: LogRecord) {
                lines += record.level to record.message
                record.thrown?.let { thrown += it.message }
            }

            override fun flush() = Unit

            override fun close() = Unit
        }

    @BeforeEach
    fun listen() {
        logger.useParentHandlers = false
        logger.addHandler(handler)
    }

    @AfterEach
    fun listenNoMore() {
        logger.removeHandler(handler)
        logger.useParentHandlers = true
    }

    private fun limiter(
        store: String,
        vararg options: Pair<String, String>,
    ) = Limiter(Settings(store, listOf(Policy("api", "1000000/hour")), mapOf(*options))) { events += it }

    private fun until(told: () -> Boolean) {
        val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS)
        while (!told()) {
            assertTrue(System.nanoTime() < deadline, "no event came")
            Thread.sleep(10)
        }
    }

    private fun Limiter.askUntil(told: () -> Boolean) = until { told().also { check(KEY) } }

    @Test
    fun `outage causes a started and an ended event`() {
        OwnRedis().use { redis ->
            limiter(redis.url, "deadline" to "500ms", "doctor_after" to "0").use { limiter ->
                limiter.ready(Duration.ofSeconds(SECONDS))
                assertEquals("store", limiter.check(KEY).source)
                redis.pause()
                repeat(5) { assertEquals("fallback", limiter.check(KEY).source) }
                repeat(5) { assertEquals("fallback", runBlocking { limiter.asynchronous.check(KEY) }.source) }
                until { events.size == 1 }
                redis.resume()
                limiter.askUntil { events.size > 1 }
            }
        }
        val (started, ended) = events
        assertEquals(2, events.size)
        assertEquals(listOf("started", 0L, Duration.ZERO, "problem"), started.run { listOf(kind, decisions, lasted, severity) })
        assertNull(started.finding)
        assertTrue(started.reason in listOf("timeout", "unreachable", "connection_lost"), started.reason)
        assertEquals(listOf("ended", started.reason, "fine"), ended.run { listOf(kind, reason, severity) })
        assertTrue(ended.decisions >= 10 && ended.lasted > Duration.ZERO)
        assertTrue(started.message.startsWith("the limiter decides without its store ("))
        assertEquals(listOf(Level.WARNING to started.message, Level.INFO to ended.message), lines.toList())
        assertFalse("nobody" in "$events $lines")
    }

    @Test
    fun `finding of the doctor causes an event`() {
        OwnRedis().use { redis ->
            limiter(redis.url, "deadline" to "10s", "doctor_after" to "1ms").use { limiter ->
                limiter.ready(Duration.ofSeconds(SECONDS))
                limiter.askUntil { events.isNotEmpty() }
            }
        }
        val event = events.single()
        assertEquals(listOf("finding", null, Duration.ZERO, "problem"), event.run { listOf(kind, reason, lasted, severity) })
        assertEquals("memory", event.finding?.subject)
        assertTrue("allkeys-lru" in event.finding!!.message)
        assertEquals(listOf(Level.WARNING to event.message), lines.toList())
        assertFalse("nobody" in "$events $lines")
    }

    @Test
    fun `exception of a hook is logged and affects no call`() {
        val failing = Consumer<DegradedEvent> { throw AssertionError(it.kind) }
        Limiter.of(POLICIES, UNREACHABLE, failing).use { limiter ->
            assertEquals("fallback", limiter.check(KEY).source)
            until { thrown.isNotEmpty() }
        }
        assertEquals(listOf<String?>("started"), thrown.toList())
        limiter(UNREACHABLE).use { limiter ->
            limiter.check(KEY)
            until { events.isNotEmpty() }
        }
        assertEquals(3, lines.size)
    }

    @Test
    fun `closed limiter delivers no events`() {
        val closed = limiter(UNREACHABLE)
        closed.close()
        assertThrows(PolylimitException.Closed::class.java) { closed.check(KEY) }
        // Events come in order.
        Limiter.of(POLICIES, UNREACHABLE).use { limiter ->
            limiter.check(KEY)
            until { lines.isNotEmpty() }
        }
        assertEquals(1, lines.size)
        assertTrue(events.isEmpty())
    }

    /** Does not capture anything, and is an object of its own each time. */
    private class Hook : Consumer<DegradedEvent> {
        override fun accept(event: DegradedEvent) = Unit
    }

    private fun hookOf(use: (Hook) -> Unit): WeakReference<Hook> = Hook().also(use).let(::WeakReference)

    @Test
    fun `closed and collected limiters release their hooks`() {
        val closed = mutableListOf<Limiter>()
        val hooks =
            List(100) { hookOf { hook -> Limiter.of(POLICIES, "memory:", hook).check(KEY) } } +
                List(100) { hookOf { hook -> closed += Limiter.of(POLICIES, "memory:", hook).also(Limiter::close) } }
        until {
            System.gc()
            hooks.all { it.get() == null }
        }
        assertEquals(100, closed.size)
    }

    @Test
    fun `asynchronous limiter delivers events when it is the only reference`() {
        val asynchronous = limiter(UNREACHABLE).asynchronous
        repeat(3) {
            System.gc()
            Thread.sleep(50)
        }
        runBlocking { asynchronous.check(KEY) }
        until { events.isNotEmpty() }
        assertNotNull(events.single().reason)
    }

    private companion object {
        const val KEY = "a key that nobody sees"
        const val UNREACHABLE = "redis://127.0.0.1:1"
        const val SECONDS = 20L
        val POLICIES = mapOf("api" to "1000000/hour")
    }
}
