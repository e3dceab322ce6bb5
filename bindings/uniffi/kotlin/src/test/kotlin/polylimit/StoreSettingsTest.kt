package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Settings of the Redis store that answer without asking it. */
class StoreSettingsTest {
    private val redis: String = System.getenv("POLYLIMIT_REDIS")
    private val key = "settings ${System.nanoTime()}"

    private fun limiter(
        quotas: String,
        lease: String? = null,
        options: Map<String, String> = emptyMap(),
    ) = Limiter(Settings(redis, listOf(Policy("settings", quotas, lease = lease)), options))

    @Test
    fun `leased key is decided without the store and never admits more than the limit`() {
        limiter("100/hour fixed_window", lease = "10/30s").use { limiter ->
            val decisions = List(150) { limiter.check(key) }
            assertEquals(100, decisions.count { it.allowed })
            val sources = decisions.groupingBy { it.source }.eachCount()
            assertTrue(sources.getValue("lease") >= 50, "$sources")
        }
    }

    @Test
    fun `closed limiter returns what it has leased`() {
        val leased = limiter("100/hour fixed_window", lease = "10/30s")
        limiter("100/hour fixed_window").use { other ->
            repeat(3) { assertTrue(leased.check(key).allowed) }
            leased.close()
            // The units are returned in the background.
            val deadline = System.nanoTime() + 20_000_000_000
            while (other.peek(key).remaining != 97L && System.nanoTime() < deadline) Thread.sleep(5)
            assertEquals(97L, other.peek(key).remaining)
        }
    }

    @Test
    fun `denied key is known to be denied unless the setting turns that off`() {
        val sources = { options: Map<String, String> ->
            limiter("1/hour fixed_window", options = options).use { limiter ->
                val name = "$key $options"
                assertTrue(limiter.check(name).allowed)
                List(20) { limiter.check(name).also { assertFalse(it.allowed) }.source }
            }
        }
        assertTrue("denial_cache" in sources(mapOf("denial_cache_max" to "1h")))
        assertEquals(setOf("store"), sources(mapOf("denial_cache_max" to "0")).toSet())
    }
}
