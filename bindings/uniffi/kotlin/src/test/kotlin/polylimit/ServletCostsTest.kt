package polylimit

import jakarta.servlet.Filter
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.util.concurrent.TimeUnit

/** Policies of one limit with costs of their own: the tokens of a request under one, the request itself under another. */
class ServletCostsTest : ServletServer() {
    private val limiter = Limiter.of(mapOf("tokens" to "10000/day fixed_window", "requests" to "3/day fixed_window"))

    private fun options() = RateLimitOptions(limiter).policy("tokens", "requests").key { "k" }

    private fun left() = listOf("tokens", "requests").map { limiter.peek("k", it).remaining }

    private fun tokens(units: Int) = listOf("x-tokens" to "$units")

    private fun refusal(options: RateLimitOptions) =
        assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitFilter(options) }.message.orEmpty()

    @AfterEach
    fun close() = limiter.close()

    @Test
    fun `tokens and requests are limited together, and a denial by one spends nothing under the other`() =
        serve(options().cost("tokens") { it.getHeader("x-tokens").toLong() }) { get ->
            assertEquals(200, get("/", tokens(4000)).statusCode())
            assertEquals(listOf(6000L, 2L), left())
            val denied = get("/", tokens(6001))
            assertEquals(429, denied.statusCode())
            assertTrue("\"violated-policies\":[\"tokens\"]" in denied.body(), denied.body())
            assertEquals(listOf(6000L, 2L), left())
            repeat(2) { assertEquals(200, get("/", tokens(1)).statusCode()) }
            assertEquals(429, get("/", tokens(1)).statusCode())
            assertEquals(listOf(5998L, 0L), left())
        }

    @Test
    fun `policies without costs of their own have the one for all`() {
        val options = options().cost(2).cost("tokens", 4000).cost("requests") { 3 }.cost("requests", 1)
        serve(options) { get -> assertEquals(200, get("/", emptyList()).statusCode()) }
        assertEquals(listOf(6000L, 2L), left())
        serve(options().cost { 2 }.cost("tokens") { 5 }) { get -> assertEquals(200, get("/", emptyList()).statusCode()) }
        assertEquals(listOf(5995L, 0L), left())
        // A cost for all that one of them can never admit, in place of which that one has its own.
        serve(options().cost(5000).cost("requests") { 0 }) { get -> assertEquals(200, get("/", emptyList()).statusCode()) }
        assertEquals(listOf(995L, 0L), left())
    }

    @Test
    fun `what was spent under a policy settles what was reserved`() {
        val during =
            Filter { request, response, chain ->
                assertEquals(listOf(6000L, 2L), left())
                chain.doFilter(request, response)
            }
        val options = options().cost("tokens", 4000).spent("tokens") { _, response -> response.status.toLong() }
        serveFilters(RateLimitFilter(options), during) { get -> assertEquals(404, get("/404", emptyList()).statusCode()) }
        assertSoonLeft(9596, 2)
    }

    @Test
    fun `policies for which nothing says what was spent have spent what is said for all`() {
        val options =
            options()
                .cost("tokens", 4000)
                .spent { _, _ -> 2 }
                .spent("tokens") { _, response -> if (response.status == 404) 10 else null }
        serve(options) { get ->
            assertEquals(404, get("/404", emptyList()).statusCode())
            assertSoonLeft(9990, 1)
            assertEquals(200, get("/200", emptyList()).statusCode())
            assertSoonLeft(5990, 0)
        }
    }

    @Test
    fun `costs that no policy of the list can have are refused when the filter is made`() {
        val unknown = "which the limit does not have: allowed are \"tokens\", \"requests\""
        assertEquals("cost is given for policy \"token\", $unknown", refusal(options().cost("token", 5)))
        assertEquals("cost is given for policy \"token\", $unknown", refusal(options().cost("token") { 5 }))
        assertEquals("spent is given for policy \"token\", $unknown", refusal(options().spent("token") { _, _ -> 5 }))
        assertEquals("cost for policy \"tokens\" is -1: allowed is 0 or more", refusal(options().cost("tokens", -1)))
        val never = refusal(options().cost("requests", 4))
        assertTrue(never.startsWith("cost is 4 for policy \"requests\", which never admits more than 3 at once"), never)
        val function = refusal(options().policy { listOf("tokens") }.cost("tokens") { 5 })
        assertTrue(function.startsWith("cost is given for single policies, and each request brings its policies"), function)
    }

    @Test
    fun `only policy of a limiter may be named`() =
        Limiter.of(mapOf("only" to "10/hour fixed_window")).use { limiter ->
            serve(RateLimitOptions(limiter).key { "k" }.cost("only") { 4 }) { get -> assertEquals("6", get("/", emptyList()).body()) }
            assertTrue(refusal(RateLimitOptions(limiter).cost("tokens") { 4 }).endsWith("does not have: allowed is \"only\""))
        }

    @Test
    fun `configuration has no costs of single policies next to it`() =
        Limiter(Settings(document = "polylimit = 1\npolicies.api.quotas = \"9/hour\"\n")).use { limiter ->
            val refused = "is given to a guard that decides by the configuration"
            assertTrue(refusal(RateLimitOptions(limiter).cost("api") { 4 }).startsWith("cost $refused"))
            assertTrue(refusal(RateLimitOptions(limiter).spent("api") { _, _ -> 4 }).startsWith("reserved $refused"))
        }

    @Test
    fun `guard has costs and spent units of single policies`() {
        val options =
            GuardOptions(
                policies = listOf("tokens", "requests"),
                costs = mapOf("requests" to 2),
                costsPerRequest = listOf("tokens"),
                reservedPolicies = listOf("tokens"),
            )
        val guard = limiter.guard(options)
        val facts = { costs: Map<String, Long> -> GuardFacts(key = "k".encodeToByteArray(), peer = "192.0.2.1", costs = costs) }
        val refused = { costs: Map<String, Long> -> assertThrows(PolylimitException.InvalidArgument::class.java) { guard.decide(facts(costs)) }.message }
        assertEquals("the request has no cost for policy \"tokens\": its guard expects one with each request", refused(emptyMap()))
        assertEquals("cost for policy \"tokens\" is -1: allowed is 0 or more", refused(mapOf("tokens" to -1)))
        val check = guard.decide(facts(mapOf("tokens" to 4000))).check
        assertEquals(listOf(6000L, 1L), left())
        check.end(mapOf("tokens" to 7))
        assertSoonLeft(9993, 1)
        val other = guard.decide(facts(mapOf("tokens" to 4000, "requests" to 1))).check
        assertThrows(PolylimitException.InvalidArgument::class.java) { other.end(mapOf("token" to 7)) }
        assertSoonLeft(5993, 0)
    }

    private fun assertSoonLeft(vararg remaining: Long) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (left() != remaining.toList() && System.nanoTime() < end) Thread.sleep(10)
        assertEquals(remaining.toList(), left())
    }
}
