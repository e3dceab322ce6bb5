package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit

/** Guards that wait for a store in Redis without a thread. */
class GuardFutureTest {
    private val facts = GuardFacts(key = "k".encodeToByteArray(), peer = "192.0.2.7")

    private fun <T> CompletableFuture<T>.here(): T = get(30, TimeUnit.SECONDS)

    private fun withRedis(
        quotas: String,
        use: (OwnRedis, Limiter) -> Unit,
    ) = OwnRedis().use { redis ->
        redis.command("ping")
        val options = mapOf("deadline" to "10s")
        Limiter(Settings(redis.url, listOf(Policy("api", quotas)), options)).use { use(redis, it) }
    }

    private fun inMemory(use: (Limiter) -> Unit) = Limiter.of(mapOf("api" to "1/hour fixed_window")).use(use)

    private fun leftOf(
        limiter: Limiter,
        expected: Long,
    ) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30)
        while (limiter.peek("k").remaining != expected && System.nanoTime() < end) Thread.sleep(5)
        assertEquals(expected, limiter.peek("k").remaining)
    }

    @Test
    fun `future is complete at once where the store is in this process`() =
        inMemory { limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api")))
            val first = guard.decideFuture(facts)
            assertTrue(first.isDone)
            assertNull(first.here().problem)
            assertEquals(429, guard.decideFuture(facts).here().problem?.status)
        }

    @Test
    fun `decisions of Redis are those of decide`() =
        withRedis("2/hour fixed_window") { _, limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api")))
            val answer = guard.decideFuture(facts).here()
            assertEquals(1L, answer.check.decisions().single().remaining)
            assertEquals("\"api\";q=2;w=3600", answer.fields["ratelimit-policy"])
            assertNull(guard.decide(facts).problem)
            val denied = guard.decideFuture(facts).here()
            assertEquals(429, denied.problem?.status)
            assertEquals("api", denied.check.outcomes().single().policy.name)
        }

    @Test
    fun `many futures wait at the same time`() =
        withRedis("100/hour fixed_window") { _, limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api")))
            val answers = List(300) { guard.decideFuture(facts) }.map { it.here() }
            assertEquals(100, answers.count { it.problem == null })
        }

    @Test
    fun `denial of an inner guard gives back what the outer one has spent`() =
        withRedis("5/hour fixed_window") { _, limiter ->
            val outer = limiter.guard(GuardOptions(policies = listOf("api")))
            inMemory { other ->
                val inner = other.guard(GuardOptions(policies = listOf("api")))
                for (expected in listOf(null, 429, 429)) {
                    val around = outer.decideFuture(facts).here()
                    val within = inner.decideFuture(GuardFacts(key = facts.key, peer = facts.peer, outer = around.check)).here()
                    assertEquals(expected, within.problem?.status)
                    within.check.close()
                    around.check.close()
                }
            }
            leftOf(limiter, 4)
        }

    @Test
    fun `response that does not count is refunded, and its fields show it`() =
        withRedis("2/hour fixed_window") { _, limiter ->
            val check = limiter.guard(GuardOptions(policies = listOf("api"))).decideFuture(facts).here().check
            val fields = check.finishFuture(counts = false).here()
            assertTrue(fields.getValue("ratelimit").startsWith("\"api\";r=2"), "$fields")
            assertEquals(2L, limiter.peek("k").remaining)
            assertEquals(fields, check.finishFuture(counts = false).here())
            assertEquals(2L, limiter.peek("k").remaining)
        }

    @Test
    fun `reservation is held until the end, and what was spent is charged`() =
        withRedis("1 concurrent; 10/hour fixed_window") { _, limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api")))
            val check = guard.decideFuture(facts).here().check
            assertTrue(check.holds)
            assertEquals(429, guard.decideFuture(facts).here().problem?.status)
            check.finishFuture(counts = true).here()
            check.end(spent = 3)
            leftOf(limiter, 7)
            assertNull(guard.decideFuture(facts).here().problem)
        }

    @Test
    fun `future that is cancelled while it waits leaves no reservation behind`() =
        withRedis("1 concurrent") { redis, limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api")))
            limiter.peek("k")
            redis.pause()
            val waiting = guard.decideFuture(facts)
            assertFalse(waiting.isDone)
            waiting.cancel(true)
            redis.resume()
            leftOf(limiter, 1)
        }

    @Test
    fun `outage is reported, and the program overrules it`() {
        val policy = Policy("api", "1/hour", outage = "deny")
        Limiter(Settings("redis://127.0.0.1:1?deadline=50ms&doctor_after=0", listOf(policy))).use { limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api"), hearsOutages = true))
            val outage = guard.decideFuture(facts).here()
            assertNotNull(outage.outage)
            assertNull(outage.check.overruleFuture(true).here().problem)
            val again = assertThrows(ExecutionException::class.java) { outage.check.overruleFuture(true).here() }
            assertTrue(again.cause is PolylimitException.InvalidArgument)
            assertEquals(503, guard.decideFuture(facts).here().check.overruleFuture(null).here().problem?.status)
        }
    }

    @Test
    fun `errors of the program are failures of the future`() =
        inMemory { limiter ->
            val guard = limiter.guard(GuardOptions(policies = listOf("api")))
            val cost = assertThrows(ExecutionException::class.java) { guard.decideFuture(GuardFacts(peer = "192.0.2.7", cost = -1)).here() }
            assertTrue(cost.cause is PolylimitException.InvalidArgument)
            limiter.close()
            val closed = assertThrows(ExecutionException::class.java) { guard.decideFuture(facts).here() }
            assertTrue(closed.cause is PolylimitException.Closed)
        }
}
