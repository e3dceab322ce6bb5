package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.time.Duration
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import java.util.function.Supplier

/** Credentials that a function of the program gives. */
class CredentialsTest {
    private val events = CopyOnWriteArrayList<DegradedEvent>()

    private fun withCredentials(
        give: Supplier<Credentials>,
        deadline: String = "5s",
        body: (Limiter, OwnRedis) -> Unit,
    ) = OwnRedis().use { redis ->
        redis.command("acl", "setuser", "limits", "on", ">old", "~*", "&*", "+@all")
        val builder = Limiter.builder().store(redis.bareUrl).policy("api", "1000000/hour").option("deadline", deadline)
        builder.option("outage", "deny").option("doctor_after", "0").option("first_connect_max", if (deadline == "5s") "5s" else "0")
        builder.onDegraded { events += it }.credentials(give).build().use { body(it, redis) }
    }

    private fun until(so: () -> Boolean) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (!so()) {
            assertTrue(System.nanoTime() < end, "waited in vain")
            Thread.sleep(10)
        }
    }

    private fun Limiter.isByStore(): Boolean {
        val decision = check("k")
        assertNotEquals("auth", decision.degraded)
        return decision.source == "store"
    }

    @Test
    fun `changed password is used without a refused decision`() {
        var password = "old"
        withCredentials({ Credentials(password, "limits") }) { limiter, redis ->
            assertTrue(limiter.isByStore())
            for (next in listOf("two", "three", "four")) {
                val before = password
                redis.command("acl", "setuser", "limits", ">$next")
                password = next
                redis.command("acl", "setuser", "limits", "<$before")
                redis.command("client", "kill", "user", "limits")
                until { limiter.isByStore() }
                repeat(50) { assertTrue(limiter.isByStore()) }
            }
        }
    }

    @Test
    fun `exception and null are the cause`() {
        // As Java may have it.
        @Suppress("UNCHECKED_CAST")
        val nothing = Supplier<Credentials?> { null } as Supplier<Credentials>
        val failing =
            mapOf<String, Supplier<Credentials>>(
                "the token service is away" to Supplier { error("the token service is away") },
                "java.lang.StackOverflowError" to Supplier { throw StackOverflowError() },
                "it has returned null" to nothing,
                "it is empty" to Supplier { Credentials("") },
            )
        for ((cause, give) in failing) {
            events.clear()
            withCredentials(give) { limiter, _ ->
                assertEquals("auth", limiter.check("k").degraded)
                val thrown = assertThrows(PolylimitException.StoreUnavailable::class.java) { limiter.ready(Duration.ofSeconds(30)) }
                assertTrue(cause in thrown.message.orEmpty(), thrown.message)
                assertTrue(limiter.admin().doctor().any { cause in it.message }, limiter.admin().doctor().toString())
                until { events.any { cause in it.message } }
            }
        }
    }

    @Test
    fun `function that blocks delays neither decisions nor close`() {
        for (isAnswered in listOf(true, false)) {
            val goOn = CountDownLatch(1)
            val give = Supplier { goOn.await().let { Credentials("old", "limits") } }
            withCredentials(give, "50ms") { limiter, _ ->
                repeat(5) { assertEquals("deny", limiter.check("k").source) }
                if (isAnswered) {
                    goOn.countDown()
                    until { limiter.check("k").source == "store" }
                }
            }
            goOn.countDown()
        }
    }

    @Test
    fun `thread ends with the limiter`() {
        fun threads() = Thread.getAllStackTraces().keys.count { it.name == "polylimit-credentials" }
        // No server is there. In memory, the function is let go at once.
        val limiter = Limiter(Settings("redis://127.0.0.1:1", listOf(Policy("api", "5/hour"))), null) { Credentials("word") }
        assertTrue(limiter.check("k").allowed)
        assertEquals(1, threads())
        limiter.close()
        until { threads() == 0 }
    }

    @Test
    fun `text form shows no secret`() {
        assertFalse("word" in Credentials("word", "limits").toString())
    }
}
