package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Fields and responses of decisions that a program has made itself. */
class HeadersTest {
    private val limiter =
        Limiter(Settings(policies = listOf(Policy("api", "5/minute"), Policy("day", "9/day; 100/week")), clock = ManualClock(0)))

    private fun outcome(
        policy: String,
        cost: Long,
    ) = Outcome(limiter.policyFor(policy), limiter.check("key", policy, cost))

    @Test
    fun `fields of one policy and of several`() {
        val first = outcome("api", 2)
        assertEquals(mapOf("ratelimit-policy" to "\"api\";q=5;w=60", "ratelimit" to "\"api\";r=3;t=66"), headerFields(first))
        val both = headerFields(listOf(first, outcome("day", 1)))
        assertEquals("\"api\";q=5;w=60, \"day:1\";q=9;w=86400, \"day:2\";q=100;w=604800", both["ratelimit-policy"])
        assertEquals(emptyMap<String, String>(), headerFields(emptyList()))
    }

    @Test
    fun `fields have the style, the form and the names of the options`() {
        val named = "legacy x-ratelimit-limit=x-limit"
        val expected = mapOf("x-limit" to "5", "x-ratelimit-remaining" to "3", "x-ratelimit-reset" to "66")
        assertEquals(expected, headerFields(outcome("api", 2), named))
        val before = System.currentTimeMillis() / 1000
        val epoch = headerFields(outcome("api", 2), "legacy epoch")
        assertTrue(epoch.getValue("x-ratelimit-reset").toLong() > before)
        assertEquals(mapOf("retry-after" to "66"), headerFields(outcome("api", 5), "none"))
    }

    @Test
    fun `problem of a denial`() {
        assertNull(problemOf(outcome("api", 4)))
        val denied = outcome("api", 2)
        val problem = problemOf(denied, cost = 2)!!
        assertEquals(429 to listOf("api"), problem.status to problem.violated)
        assertEquals("Not enough of the quota is left: retry in 62 s.", problem.detail)
        assertEquals(mapOf("content-type" to "application/problem+json", "vary" to "accept"), problem.fields)
        assertTrue(problem.body.contains("\"violated-policies\":[\"api\"]"), problem.body)
        assertEquals("${problem.detail}\n", problemOf(listOf(denied), 2, "text/plain")!!.body)
        // One unit is left under the other policy.
        assertEquals(listOf("day:1"), problemOf(listOf(outcome("api", 1), outcome("day", 10)), 10)!!.violated)
    }

    @Test
    fun `outcomes of a guard and of quotas without a name`() {
        val guard = limiter.guard(GuardOptions(policies = listOf("api")))
        val answer = guard.decide(GuardFacts(peer = "192.0.2.1"))
        assertEquals(answer.fields, headerFields(answer.check.outcomes()))
        assertEquals("\"3|second\";q=3;w=1", headerFields(outcome("3/second", 1))["ratelimit-policy"])
    }

    @Test
    fun `what is not allowed is refused`() {
        val good = outcome("api", 1)
        val calls =
            listOf(
                { headerFields(good, "new") },
                { headerFields(good, "x=y") },
                { headerFields(good.copy(policy = Policy("api", "5/never"))) },
                { headerFields(good.copy(decision = good.decision.copy(source = "guess"))) },
                { headerFields(good.copy(decision = good.decision.copy(degraded = "guess"))) },
                { headerFields(good.copy(decision = good.decision.copy(quotas = emptyList()))) },
                { problemOf(good, cost = -1) },
            )
        for (call in calls) assertThrows(PolylimitException.InvalidArgument::class.java) { call() }
    }
}
