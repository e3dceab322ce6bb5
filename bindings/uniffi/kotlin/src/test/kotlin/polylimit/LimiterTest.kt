package polylimit

import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.nio.file.Files
import java.time.Duration
import java.util.concurrent.Callable
import java.util.concurrent.Executors

class LimiterTest {
    private fun limiter(
        quotas: String,
        clock: ManualClock? = null,
    ) = Limiter(Settings(policies = listOf(Policy("api", quotas)), clock = clock))

    @ParameterizedTest
    @MethodSource("stores")
    fun `concurrent callers get exactly the limit`(store: String) {
        Limiter.of(mapOf("api" to "40/hour"), store).use { limiter ->
            val key = "key ${System.nanoTime()}"
            val threads = Executors.newFixedThreadPool(4)
            try {
                val blocking = threads.invokeAll(List(32) { Callable { limiter.check(key).allowed } }).count { it.get() }
                val suspended =
                    runBlocking { List(32) { async { limiter.asynchronous.check(key).allowed } }.awaitAll() }.count { it }
                assertEquals(40, blocking + suspended)
            } finally {
                threads.shutdown()
            }
        }
    }

    @Test
    fun `every operation works`() {
        limiter("10/minute").use { limiter ->
            assertEquals(9L, limiter.check("key").remaining)
            assertEquals(9L, limiter.peek("key").remaining)
            assertEquals(9L, limiter.take("key", cost = 99).taken)
            assertEquals(5L, limiter.refund("key", cost = 5).remaining)
            assertEquals(0L, limiter.charge("key", "api", 7).remaining)
            val denied = limiter.check("key")
            assertFalse(denied.allowed)
            assertTrue(denied.retryAfter!! > Duration.ZERO && denied.retryAfter!! <= denied.resetAfter)
            assertNull(limiter.check("key", cost = 99).retryAfter)
            assertEquals(10L, limiter.reset("key").remaining)
            val many = limiter.checkMany(listOf(request("key"), request("key", "unknown")))
            assertEquals(9L, many[0].get().remaining)
            assertThrows(PolylimitException.InvalidArgument::class.java) { many[1].get() }
            assertEquals(8L, limiter.check("key", "10/minute; 8/hour").quotas.last().remaining + 1)
            limiter.setPolicy("api", "20/minute")
            assertEquals("20/minute", limiter.policy("api")!!.quotas)
            limiter.ready(Duration.ofSeconds(1))
            assertEquals(0, limiter.admin().doctor().size)
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    fun `every quota has a verdict of its own`(store: String) {
        Limiter.of(mapOf("api" to "5/hour fixed_window; 2/minute token_bucket"), store).use { limiter ->
            val key = "key ${System.nanoTime()}"
            assertEquals(listOf(true to Duration.ZERO, true to Duration.ZERO), verdicts(limiter.check(key, cost = 2)))
            val denied = limiter.check(key)
            assertEquals(listOf(true to Duration.ZERO, false to denied.retryAfter), verdicts(denied))
            assertTrue(denied.retryAfter!! > Duration.ZERO)
            assertEquals(listOf(true to Duration.ZERO, false to null), verdicts(limiter.check(key, cost = 3)))
            val suspended = runBlocking { limiter.asynchronous.check(key, cost = 9) }
            assertEquals(listOf(false to null, false to null), verdicts(suspended))
            val usage = limiter.charge(key).quotas
            assertEquals(listOf(true to Duration.ZERO, true to Duration.ZERO), usage.map { it.allowed to it.retryAfter })
        }
    }

    private fun verdicts(decision: Decision) = decision.quotas.map { it.allowed to it.retryAfter }

    @Test
    fun `invalid arguments are refused`() {
        limiter("10/minute").use { limiter ->
            for (cost in listOf(-1L, Long.MIN_VALUE, Long.MAX_VALUE, 1_000_000_000_001L)) {
                val refused = assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.check("key", cost = cost) }
                assertTrue(refused.message!!.contains("cost is $cost"), refused.message)
                assertEquals("invalid_argument", refused.code)
            }
            val requests = listOf(request("many", cost = -1), request("many"), request("many", cost = Long.MIN_VALUE), request("many"))
            for (answers in listOf(limiter.checkMany(requests), runBlocking { limiter.asynchronous.checkMany(requests) })) {
                assertEquals(listOf(null, 1L, null, 0L), answers.map { it.decision?.run { remaining - answers[3].decision!!.remaining } })
                assertEquals("cost is -1: allowed is 0 or more", answers[0].errorMessage)
                assertEquals("invalid_argument", answers[0].errorCode)
            }
            assertThrows(PolylimitException.InvalidArgument::class.java) {
                limiter.acquire(request("key"), Duration.ofSeconds(-1))
            }
            assertTrue(limiter.acquire(request("key"), Duration.ofSeconds(Long.MAX_VALUE)).allowed)
        }
        assertThrows(PolylimitException.InvalidArgument::class.java) { limiter("10/fortnight") }
        val half = assertThrows(PolylimitException.InvalidArgument::class.java) { Limiter.of(mapOf("a\ud800" to "1/s")) }
        assertTrue("\\ud800, at index 1" in half.message!!, half.message)
        assertThrows(PolylimitException.InvalidArgument::class.java) {
            Limiter(Settings(options = mapOf("max_keys" to "1e3")))
        }
    }

    @Test
    fun `store that is null is refused`() {
        val refusals =
            listOf<() -> Limiter>(
                { Limiter.of(mapOf("a" to "1/minute"), System.getenv("POLYLIMIT_NO_SUCH_VARIABLE")) },
                { Limiter(Settings(store = null)) },
                { Limiter.builder().store(null).build() },
            )
        for (open in refusals) {
            val refused = assertThrows(PolylimitException.InvalidArgument::class.java) { open() }
            assertTrue(refused.message!!.startsWith("the store's URL is missing"), refused.message)
        }
    }

    @Test
    fun `durations are reported as they were written`() {
        limiter("10/minute").use { limiter ->
            val second = Duration.ofSeconds(-1)
            val refusals =
                mapOf<String, () -> Any>(
                    "time" to { limiter.admin().block("k", second) },
                    "timeout" to { limiter.acquire("k", second) },
                    "ttl" to { limiter.renew("k", "id", second) },
                    "maxAge" to { limiter.reserve("k", options = ReserveOptions(maxAge = second)) },
                )
            for ((name, call) in refusals) {
                val refused = assertThrows(PolylimitException.InvalidArgument::class.java) { call() }
                assertEquals("$name is PT-1S: allowed is PT0S or more", refused.message)
            }
        }
    }

    @Test
    fun `text form shows the kind of the store and policies`() {
        val limiter = Limiter.builder().store("redis://user:secret@localhost").policy("api", "1/s").policy("b", "2/s").build()
        assertEquals("Limiter(redis: api, b)", "$limiter")
        limiter.close()
        assertEquals("Limiter(redis: api, b, closed)", "$limiter")
    }

    @Test
    fun `requests of several keys are decided together`() {
        Limiter.of(mapOf("a" to "5/hour", "b" to "1/hour")).use { limiter ->
            val both = listOf(request("x", "a"), request("y", "b"))
            assertEquals(listOf(4L, 0L), limiter.checkTogether(both).map { it.remaining })
            assertEquals(listOf(4L to true, 0L to false), limiter.checkTogether(both).map { it.remaining to it.allowed })
            assertEquals(listOf(4L to true, 0L to false), limiter.peekTogether(both).map { it.remaining to it.allowed })
            assertEquals(4L, limiter.peek("x", "a").remaining)
            val unknown = both + request("x", "unknown")
            for (decide in listOf<(List<Request>) -> Any>(limiter::checkTogether, limiter::peekTogether, { limiter.reserveTogether(it) })) {
                assertThrows(PolylimitException.InvalidArgument::class.java) { decide(unknown) }
            }
            assertEquals(emptyList<Decision>(), limiter.peekTogether(emptyList()))
        }
    }

    @Test
    fun `counters can be read and credentials changed`() {
        OwnRedis().use { redis ->
            val (scheme, server) = redis.url.split(":", limit = 2)
            val (password, address) = server.removePrefix("//:").split("@")
            Limiter(Settings("$scheme://$address", listOf(Policy("api", "5/minute")))).use { limiter ->
                limiter.admin().setCredentials(null, password)
                limiter.ready(Duration.ofSeconds(30))
                val before = limiter.stats
                limiter.reset("key")
                assertEquals(before.keys, limiter.stats.keys)
                assertTrue(limiter.stats != before)
            }
        }
    }

    @Test
    fun `unnamed quotas have separate states in each scope`() {
        limiter("10/minute").use { limiter ->
            assertEquals("api", limiter.policyFor().name)
            assertEquals("api", limiter.policyFor("api", "/login").name)
            val (login, search) = listOf("/login", "/search").map { limiter.policyFor("5 per minute", it).name }
            assertEquals(login, limiter.policyFor("5/60s", "/login").name)
            assertEquals(listOf(4L, 4L), listOf(login, search).map { limiter.check("key", it).remaining })
            for (unknown in listOf("apy", "100/minut")) {
                assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.policyFor(unknown) }
            }
        }
    }

    @Test
    fun `text form shows no secret`() {
        val settings = Settings("redis://user:hunter2@h", listOf(Policy("api", "1/s")), mapOf("password" to "hunter2"))
        val shown = "$settings ${request("hunter2", "api")} ${request("hunter2").copy(cost = 5)}"
        assertFalse(shown.contains("hunter2") || shown.contains("104, 117"), shown)
        assertTrue(shown.contains("redis") && shown.contains("password") && shown.contains("api"), shown)
    }

    @Test
    fun `every kind of error has its exception`() {
        val codes = errorTable().map { it.code }
        assertEquals(codes, codes.map { errorOf(it, "why").code })
        assertEquals(listOf(1, 2, 3, 4, 5), errorTable().map { it.number })
        assertEquals(codes.size, codes.map { errorOf(it, "why").javaClass }.distinct().size)
    }

    @Test
    fun `absent store is unavailable and closed limiter throws Closed`() {
        val limiter = Limiter.of(mapOf("api" to "1/minute"), "redis://127.0.0.1:1?deadline=50ms")
        limiter.use {
            assertThrows(PolylimitException.StoreUnavailable::class.java) { it.ready(Duration.ofMillis(50)) }
            assertTrue(it.check("key").isOutage)
        }
        assertThrows(PolylimitException.Closed::class.java) { limiter.check("key") }
        assertThrows(PolylimitException.Closed::class.java) { runBlocking { limiter.asynchronous.check("key") } }
        limiter.close()
    }

    @Test
    fun `cancelled acquire leaves the queue`() {
        val clock = ManualClock(1_700_000_000_000_000)
        limiter("1/minute fixed_window", clock).use { limiter ->
            runBlocking {
                assertTrue(limiter.asynchronous.check("key").allowed)
                val wait = request("key")
                // Each is in line when it first suspends.
                val first = launch(start = CoroutineStart.UNDISPATCHED) { limiter.asynchronous.acquire(wait, Duration.ofHours(1)) }
                val second =
                    async(start = CoroutineStart.UNDISPATCHED) { limiter.asynchronous.acquire(wait, Duration.ofHours(1)) }
                first.cancelAndJoin()
                assertTrue(first.isCancelled)
                clock.advance(Duration.ofMinutes(1))
                assertTrue(withTimeout(30_000) { second.await() }.allowed)
            }
        }
    }

    @Test
    fun `native handles and futures are released`() {
        limiter("1000000/minute").use { limiter ->
            val many = {
                repeat(HANDLES) { ManualClock(0).close() }
                runBlocking { repeat(HANDLES) { limiter.asynchronous.check("key") } }
            }
            many()
            val before = residentPages()
            many()
            // 400 bytes for each pair of a handle and a future; they are larger than that.
            val grown = (residentPages() - before) * PAGE
            assertTrue(grown < HANDLES * 400L, "$grown bytes more")
        }
    }

    companion object {
        private const val HANDLES = 100_000
        private const val PAGE = 4_096L

        private fun residentPages(): Long = Files.readString(java.nio.file.Path.of("/proc/self/statm")).split(" ")[1].toLong()

        @JvmStatic
        fun stores(): List<String> =
            listOf("memory:", "local:kotlin-${ProcessHandle.current().pid()}?size=1MiB", System.getenv("POLYLIMIT_REDIS"))
    }
}
