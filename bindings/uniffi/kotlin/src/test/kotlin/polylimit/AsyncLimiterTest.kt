package polylimit

import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.time.Duration
import java.util.concurrent.CancellationException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit

/** The asynchronous face, in coroutines and as futures. */
class AsyncLimiterTest {
    private val key = "async ${System.nanoTime()}"
    private val second = Duration.ofSeconds(20)

    private fun limiter(store: String) = Limiter.of(mapOf("api" to "10/hour fixed_window", "wide" to "20/hour fixed_window"), store)

    private fun <T> CompletableFuture<T>.soon(): T = get(20, TimeUnit.SECONDS)

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `coroutines have every operation`(store: String) =
        limiter(store).use { limiter ->
            runBlocking {
                val asynchronous = limiter.asynchronous
                asynchronous.ready(second)
                val one = request(key, "api")
                assertEquals(9L, asynchronous.check(one).remaining)
                assertEquals(9L, asynchronous.peek(one).remaining)
                assertEquals(2L, asynchronous.take(one.copy(cost = 2)).taken)
                assertEquals(6L, asynchronous.charge(one).remaining)
                assertEquals(7L, asynchronous.refund(one).remaining)
                assertEquals(6L, asynchronous.acquire(one, second).remaining)
                assertEquals(listOf(5L, 4L), asynchronous.checkMany(listOf(one, one)).map { it.get().remaining })
                assertEquals(listOf(3L, 19L), asynchronous.checkTogether(listOf(one, request(key, "wide"))).map { it.remaining })
                assertEquals(listOf(3L, 19L), asynchronous.peekTogether(listOf(one, request(key, "wide"))).map { it.remaining })
                val reserved = asynchronous.reserveTogether(listOf(one, request(key, "1 concurrent")), id = "mine")
                assertEquals(listOf(true, "mine", 2L), listOf(reserved.allowed, reserved.id, reserved.decisions[0].remaining))
                assertTrue(asynchronous.cancel(request(key, "1 concurrent"), reserved.id).found)
                assertEquals(10L, asynchronous.reset(one).remaining)
                asynchronous.reset(request(key, "wide"))
                assertEquals(limiter.admin().doctor().map { it.subject }, asynchronous.admin().doctor().map { it.subject })
            }
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `futures have every operation`(store: String) =
        limiter(store).use { limiter ->
            val asynchronous = limiter.asynchronous
            asynchronous.readyFuture(second).soon()
            val one = request("$key futures", "api")
            assertEquals(9L, asynchronous.checkFuture(one).soon().remaining)
            assertEquals(9L, asynchronous.peekFuture(one).soon().remaining)
            assertEquals(2L, asynchronous.takeFuture(one.copy(cost = 2)).soon().taken)
            assertEquals(6L, asynchronous.chargeFuture(one).soon().remaining)
            assertEquals(7L, asynchronous.refundFuture(one).soon().remaining)
            assertEquals(6L, asynchronous.acquireFuture(one, second).soon().remaining)
            assertEquals(listOf(5L, 4L), asynchronous.checkManyFuture(listOf(one, one)).soon().map { it.get().remaining })
            val both = listOf(one, one.copy(policy = "wide"))
            assertEquals(listOf(3L, 19L), asynchronous.checkTogetherFuture(both).soon().map { it.remaining })
            assertEquals(listOf(3L, 19L), asynchronous.peekTogetherFuture(both).soon().map { it.remaining })
            val reserved = asynchronous.reserveTogetherFuture(listOf(one, one.copy(policy = "1 concurrent"))).soon()
            assertTrue(reserved.allowed)
            assertTrue(asynchronous.cancelFuture(one.copy(policy = "1 concurrent"), reserved.id).soon().found)
            assertEquals(10L, asynchronous.resetFuture(one).soon().remaining)
            asynchronous.resetFuture(both[1]).soon()
            assertEquals(limiter.admin().doctor().map { it.subject }, asynchronous.admin().doctorFuture().soon().map { it.subject })
        }

    @Test
    fun `many calls wait at once without threads of their own`() =
        limiter(System.getenv("POLYLIMIT_REDIS")).use { limiter ->
            val requests = List(2_000) { request("$key ${it % 100}", "api") }
            val futures = requests.map(limiter.asynchronous::checkFuture)
            val suspended = runBlocking { requests.map { async { limiter.asynchronous.check(it) } }.awaitAll() }
            val allowed = (futures.map { it.soon() } + suspended).groupBy { it.allowed }
            assertEquals(1_000, allowed.getValue(true).size)
            assertEquals(1, Thread.getAllStackTraces().keys.count { it.name == "polylimit-completions" })
        }

    @Test
    fun `code of the program does not run on the thread that completes calls`() =
        limiter(System.getenv("POLYLIMIT_REDIS")).use { limiter ->
            val asynchronous = limiter.asynchronous
            val other = request("$key other", "api")
            // It waits for another call, which that thread has to complete.
            val dependent = asynchronous.readyFuture(second).thenApply { limiter.acquire(other, second).remaining }
            assertEquals(9L, dependent.soon())
            val unconfined =
                runBlocking {
                    async(Dispatchers.Unconfined) {
                        asynchronous.ready(second)
                        Thread.currentThread().name
                    }.await()
                }
            assertNotEquals("polylimit-completions", unconfined)
        }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `cancelled acquire leaves the queue`(store: String) {
        val clock = ManualClock(1_700_000_000_000_000)
        val settings = Settings(store, listOf(Policy("api", "1/minute fixed_window")), clock = clock)
        Limiter(settings).use { limiter ->
            val one = request("$key cancelled")
            assertTrue(limiter.check(one).allowed)
            val hour = Duration.ofHours(1)
            val first = limiter.asynchronous.acquireFuture(one, hour)
            assertTrue(first.cancel(false) && first.isCancelled)
            assertThrows(CancellationException::class.java) { first.get() }
            val second =
                runBlocking {
                    val cancelled = async(start = CoroutineStart.UNDISPATCHED) { limiter.asynchronous.acquire(one, hour) }
                    val waiting = limiter.asynchronous.acquireFuture(one, hour)
                    cancelled.cancel()
                    waiting
                }
            assertFalse(second.isDone)
            // A caller that had not learnt its wait when the clock was advanced waits another minute.
            for (attempt in 1..8) {
                clock.advance(Duration.ofMinutes(1))
                if (runCatching { second.get(2, TimeUnit.SECONDS) }.isSuccess) break
            }
            assertTrue(second.soon().allowed)
            assertEquals(0L, limiter.peek(one).remaining)
            limiter.reset(one)
        }
    }
}
