package polylimit

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.async
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.time.Duration
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit

/** Reservations and their handles, in all faces. */
class ReservationTest {
    private val key = "reservation ${System.nanoTime()}"
    private val minute = Duration.ofMinutes(1)

    private fun limiter(
        store: String = "memory:",
        quotas: String = "${concurrent(2)}; 100/hour",
        clock: ManualClock? = null,
    ) = Limiter(Settings(store, listOf(Policy("api", quotas)), clock = clock))

    private fun <T> CompletableFuture<T>.soon(): T = get(20, TimeUnit.SECONDS)

    private fun assertSoon(condition: () -> Boolean) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (!condition()) {
            assertTrue(System.nanoTime() < end)
            Thread.sleep(10)
        }
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `job that runs again is charged once`(store: String) =
        limiter(store).use { limiter ->
            val job = ReserveOptions(id = "job", remember = Duration.ofHours(1))
            for (repeated in listOf(false, true)) {
                val usage = limiter.reserve(request(key, cost = 40), job).commit(spent = 30)
                assertEquals(listOf(true, repeated, 70L), listOf(usage.found, usage.repeated, usage.remaining))
            }
            val again = limiter.commit(request(key), "job", 30)
            assertEquals(listOf(false, true), listOf(again.found, again.repeated))
            assertFalse(limiter.commit(request(key), "other").repeated)
            assertThrows(PolylimitException::class.java) {
                limiter.reserve(request(key), ReserveOptions(remember = Duration.ofHours(49)))
            }
            limiter.reset(key)
            Unit
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `request is reserved together or not at all`(store: String) =
        Limiter.of(mapOf("model" to "2 concurrent; 100/day fixed_window", "rate" to "2/day fixed_window"), store).use { limiter ->
            val model = request(key, "model", cost = 40)
            val rate = request(key, "rate")
            val both = listOf(model, rate)
            val first = limiter.reserveTogether(both)
            assertEquals(listOf(true, 32, listOf(60L, 1L)), listOf(first.allowed, first.id.length, first.decisions.map { it.remaining }))
            val second = limiter.reserveTogether(both, "second", minute)
            assertEquals(listOf(true, "second"), listOf(second.allowed, second.id))
            val denied = limiter.reserveTogether(both)
            assertEquals(listOf(false, listOf(false, false)), listOf(denied.allowed, denied.decisions.map { it.allowed }))
            assertTrue(limiter.cancel(model, first.id).found)
            assertFalse(limiter.cancel(rate, first.id).found)
            assertEquals(90L, limiter.commit(model, second.id, 10).remaining)
            // No slot is taken where another policy denies.
            assertFalse(limiter.reserveTogether(both).allowed)
            assertEquals(2L, limiter.peek(model).quotas[0].remaining)
            for (wrong in listOf<() -> Any>(
                { limiter.reserveTogether(both, id = "") },
                { limiter.reserveTogether(both, ttl = Duration.ZERO) },
                { limiter.reserveTogether(both, remember = Duration.ofHours(49)) },
            )) {
                assertThrows(PolylimitException.InvalidArgument::class.java) { wrong() }
            }
            for (request in both) limiter.reset(request)
        }

    @Test
    fun `commits of requests and of decisions are remembered`() {
        val document =
            """{"polylimit": 1, "policies": {"model": {"quotas": "2 concurrent; 100/day fixed_window"}},
                "rules": [{"apply": [{"policy": "model", "key": "{user}", "cost": 40}]}]}"""
        Limiter(Settings(document = document)).use { limiter ->
            val requests = listOf(request("k", "model", cost = 40))
            for (repeated in listOf(false, true)) {
                val reserved = limiter.reserveTogether(requests, "job", remember = minute)
                val usage = limiter.commit(requests[0], reserved.id, 30)
                assertEquals(listOf(true, repeated, 70L), listOf(usage.found, usage.repeated, usage.remaining))
            }
            for (repeated in listOf(false, true)) {
                val decided = limiter.decide(RequestAttributes(attributes = mapOf("user" to "u")), "job", remember = minute)
                val usage = limiter.commit(request("u", "model"), decided.decisions[0].reservation!!, 30)
                assertEquals(listOf(true, repeated, 70L), listOf(usage.found, usage.repeated, usage.remaining))
            }
        }
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `handle charges what was spent and frees its slot`(store: String) =
        limiter(store).use { limiter ->
            val first = limiter.reserve(key, cost = 40)
            val second = limiter.reserve(key, cost = 30)
            val third = limiter.reserve(key)
            assertEquals(listOf(true, true, false), listOf(first, second, third).map { it.allowed })
            assertEquals(30L, second.decision.quotas.last().remaining)
            assertFalse(first.isLost)
            val committed = first.commit(spent = 50)
            assertTrue(committed.found)
            assertEquals(50L, committed.quotas.last().remaining + 30)
            assertFalse(first.commit().found)
            assertTrue(second.cancel().found)
            assertFalse(third.cancel().found)
            listOf(first, second, third).forEach { it.close() }
            assertEquals(50L, limiter.peek(key).quotas.last().remaining)
            limiter.reset(key)
            Unit
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `scope ends its reservation`(store: String) =
        limiter(store).use { limiter ->
            val left = { limiter.peek(key).quotas.last().remaining }
            assertEquals("done", limiter.reserve(key, cost = 10).use { "done" })
            assertEquals(100L, left())
            val commits = ReserveOptions(commitAtEnd = true)
            limiter.reserve(key, cost = 10, options = commits).use { assertEquals(90L, left()) }
            assertEquals(90L, left())
            val broken = IllegalStateException("broken")
            assertEquals(broken, assertThrows(IllegalStateException::class.java) { limiter.reserve(key, cost = 10, options = commits).use { throw broken } })
            assertEquals(0, broken.suppressed.size)
            assertEquals(90L, left())
            limiter.reserve(key, cost = 10, options = commits).use { it.commit(3) }
            assertEquals(87L, left())
            limiter.reset(key)
            Unit
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `reservation is committed, cancelled and renewed by its id`(store: String) {
        val clock = ManualClock(1_700_000_000_000_000)
        limiter(store, "100/hour fixed_window", clock).use { limiter ->
            val options = ReserveOptions(ttl = minute, maxAge = Duration.ZERO, id = "mine")
            val held = limiter.reserve(key, cost = 10, options = options)
            assertEquals("mine", held.id)
            clock.advance(Duration.ofSeconds(59))
            assertTrue(limiter.renew(key, "mine", minute).found)
            clock.advance(Duration.ofSeconds(59))
            // The id is there: nothing is set aside twice.
            assertEquals(90L, limiter.reserve(key, cost = 50, options = options).decision.remaining)
            assertEquals(93L, limiter.commit(key, "mine", spent = 7).remaining)
            assertFalse(limiter.commit(key, "mine", spent = 7).found)
            assertFalse(limiter.cancel(key, "mine").found)
            assertFalse(limiter.renew(key, "mine", minute).found)
            held.close()
            assertEquals(93L, limiter.peek(key).remaining)
            limiter.reset(key)
        }
    }

    @Test
    fun `reservation that is not renewed is lost at its end`() {
        val clock = ManualClock(1_700_000_000_000_000)
        limiter(clock = clock).use { limiter ->
            val held = limiter.reserve(key, options = ReserveOptions(ttl = minute))
            assertFalse(held.isLost)
            clock.advance(minute)
            assertSoon { held.isLost }
            assertFalse(held.commit(1).found)
            assertFalse(held.isLost)
        }
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `reservation that nothing refers to is ended by the garbage collector`(store: String) =
        limiter(store).use { limiter ->
            repeat(2) { assertTrue(limiter.reserve(key).allowed) }
            assertFalse(limiter.peek(key).allowed)
            assertSoon {
                System.gc()
                limiter.peek(key).remaining == 100L && limiter.peek(key).quotas.first().remaining == 2L
            }
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `reserve with a timeout waits in line`(store: String) =
        limiter(store, "1 concurrent").use { limiter ->
            val options = ReserveOptions(timeout = Duration.ofHours(1))
            val first = limiter.reserve(key, options = options)
            val blocking = CompletableFuture.supplyAsync { limiter.reserve(key, options = options) }
            assertFalse(limiter.reserve(key, options = ReserveOptions(timeout = Duration.ofMillis(1))).allowed)
            first.close()
            val second = blocking.soon()
            assertTrue(second.allowed)
            val cancelled = limiter.asynchronous.reserveFuture(request(key), options)
            assertTrue(cancelled.cancel(false))
            val waiting = limiter.asynchronous.reserveFuture(request(key), options)
            val coroutine =
                runBlocking {
                    val left = async(start = CoroutineStart.UNDISPATCHED) { limiter.asynchronous.reserve(key, options = options) }
                    left.cancel()
                    second.close()
                    left
                }
            assertTrue(coroutine.isCancelled)
            val third = waiting.soon()
            assertTrue(third.allowed)
            third.close()
            assertSoon { limiter.peek(key).allowed }
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `coroutines hold reservations`(store: String) =
        limiter(store).use { limiter ->
            val asynchronous = limiter.asynchronous
            val one = request(key, cost = 10)
            runBlocking {
                val left = suspend { asynchronous.peek(one).quotas.last().remaining }
                asynchronous.reserve(one).use { assertEquals(90L, left()) }
                assertEquals(100L, left())
                asynchronous.reserve(one).use { assertEquals(96L, it.commit(4).quotas.last().remaining) }
                val held = asynchronous.reserve(key, cost = 10)
                assertFalse(held.isLost)
                assertTrue(held.cancel().found)
                asynchronous.reserve(one, ReserveOptions(commitAtEnd = true)).end()
                assertEquals(86L, left())
                assertThrows(CancellationException::class.java) {
                    runBlocking { asynchronous.reserve(one, ReserveOptions(commitAtEnd = true)).use { throw CancellationException("enough") } }
                }
                assertSoon { limiter.peek(one).quotas.first().remaining == 2L }
                assertEquals(86L, left())
                asynchronous.reserve(one, ReserveOptions(id = "mine"))
                assertTrue(asynchronous.renew(one, "mine", minute).found)
                assertTrue(asynchronous.cancel(one, "mine").found)
                assertFalse(asynchronous.commit(one, "mine", 1).found)
                asynchronous.reset(one)
            }
            Unit
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `futures hold reservations`(store: String) =
        limiter(store).use { limiter ->
            val asynchronous = limiter.asynchronous
            val one = request(key, cost = 10)
            val committed = asynchronous.reserveFuture(one).thenCompose { it.commitFuture(4) }.soon()
            assertEquals(96L, committed.quotas.last().remaining)
            assertTrue(asynchronous.reserveFuture(one).soon().cancelFuture().soon().found)
            asynchronous.reserveFuture(one, ReserveOptions(commitAtEnd = true)).soon().endFuture().soon()
            assertEquals(86L, limiter.peek(one).quotas.last().remaining)
            val held = asynchronous.reserveFuture(one, ReserveOptions(id = "mine")).soon()
            assertTrue(asynchronous.renewFuture(one, held.id, minute).soon().found)
            assertTrue(asynchronous.cancelFuture(one, held.id).soon().found)
            assertFalse(asynchronous.commitFuture(one, held.id).soon().found)
            held.close()
            limiter.reset(key)
            Unit
        }

    @Test
    fun `refused reservations say why`() {
        fun refused(call: () -> Any?) = assertThrows(PolylimitException.InvalidArgument::class.java) { call() }.message!!
        limiter().use { limiter ->
            for (id in listOf("", "x".repeat(65))) {
                assertTrue("1 to 64" in refused { limiter.reserve(key, options = ReserveOptions(id = id)) })
                assertTrue("1 to 64" in refused { limiter.cancel(key, id) })
            }
            for (ttl in listOf(Duration.ZERO, Duration.ofHours(49), Duration.ofMillis(-1))) {
                assertTrue("ttl" in refused { limiter.reserve(key, options = ReserveOptions(ttl = ttl)) })
                assertTrue("ttl" in refused { limiter.renew(key, "id", ttl) })
            }
            for (call in listOf({ limiter.check(key) }, { limiter.take(key) }, { limiter.acquire(request(key), minute) })) refused(call)
            val held = limiter.reserve(key)
            for (spent in listOf(-1L, 1_000_000_000_001L)) refused { held.commit(spent) }
            // A refused commit leaves the reservation to its handle.
            assertEquals(1L, limiter.peek(key).quotas.first().remaining)
            held.close()
            assertEquals(2L, limiter.peek(key).quotas.first().remaining)
        }
        limiter(quotas = "5/s leaky_bucket").use { limiter -> refused { limiter.reserve(key) } }
        val leased = Policy("api", "1000/s", lease = "auto")
        Limiter(Settings(System.getenv("POLYLIMIT_REDIS"), listOf(leased))).use { limiter -> refused { limiter.reserve(key) } }
        refused { quota(QuotaNumbers(limit = 5)) }
        assertEquals("20 concurrent", quota(QuotaNumbers(limit = 20, algorithm = "concurrency")))
        assertEquals("5/month from=15", quota(QuotaNumbers(limit = 5, calendar = "month from=15 zone=UTC")))
    }

    @Test
    fun `closed limiter ends its reservations no more`() {
        val limiter = limiter()
        val held = limiter.reserve(key)
        limiter.close()
        assertThrows(PolylimitException.Closed::class.java) { held.commit(1) }
        assertThrows(PolylimitException.Closed::class.java) { limiter.reserve(key) }
    }
}
