package polylimit

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.time.Duration
import java.util.concurrent.ExecutionException

/** Lists of keys, explanations and counters of keys. */
class ReportsTest {
    private fun limiter(
        store: String,
        options: Map<String, String> = emptyMap(),
    ) = Limiter(Settings(store, listOf(Policy("api", "4/hour fixed_window"), Policy("login", "2/hour fixed_window")), options))

    private fun options() = ListOptions().pacePercent(100)

    /** The pages of a list. */
    private fun pages(
        options: ListOptions,
        page: (ListOptions) -> KeyPage,
    ): List<KeyPage> {
        val pages = mutableListOf(page(options))
        while (pages.last().cursor != null) pages += page(options.cursor(pages.last().cursor))
        return pages
    }

    private fun Admin.keys(options: ListOptions) = pages(options, ::list).flatMap { it.keys }

    @ParameterizedTest
    @MethodSource("ownStores")
    fun `a list has the keys that the filter takes`(store: String) {
        limiter(store).use { limiter ->
            limiter.check("user:1", "api")
            limiter.charge("user:2", "api", 3)
            limiter.charge(Request(byteArrayOf(117, -1), "api"))
            limiter.check("x".repeat(300), "login")
            val listed = limiter.admin().keys(options())
            assertEquals(4, listed.size)
            val second = listed.single { it.key.text == "user:2" }
            assertEquals(listOf("api", 75L, 0L, 0L), second.run { listOf(policy, usedPercent, reservations, blockedForUs) })
            val quota = second.quotas.single()
            assertEquals(listOf("4/hour fixed_window", 4L, 4L, 3L, 1L), quota.run { listOf(quota.quota, limit, capacity, used, remaining) })
            assertTrue(quota.resetAfterUs in 1..3_600_000_000)
            assertEquals(listOf("df8="), listed.mapNotNull { it.key.base64 })
            assertTrue(listed.single { it.policy == "login" }.key.digest!!.matches(Regex("([0-9a-f]{2})+")))
            assertEquals(2, limiter.admin().keys(options().policy("api").keyPrefix("user:")).size)
            assertEquals(1, limiter.admin().keys(options().keyPrefix(byteArrayOf(117, -1))).size)
            assertEquals(listOf("user:2"), limiter.admin().keys(options().atLeastUsed(75)).map { it.key.text })
            assertEquals("user:2", limiter.admin().scanTop(1, options().policy("api")).keys.single().key.text)
            // Text forms show no key.
            assertFalse("user:2" in "$listed ${limiter.admin().explain("user:2", "api")}")
        }
    }

    @ParameterizedTest
    @MethodSource("ownStores")
    fun `pages lead from one to the next on every face`(store: String) {
        limiter(store).use { limiter ->
            val asynchronous = limiter.asynchronous
            repeat(10) { part -> limiter.checkMany(List(200) { request("user:${part * 200 + it}", "api") }) }
            val faces =
                listOf<(ListOptions) -> KeyPage>(
                    { limiter.admin().list(it) },
                    { runBlocking { asynchronous.admin().list(it) } },
                    { asynchronous.admin().listFuture(it).get() },
                )
            for (face in faces) {
                val pages = pages(options().entries(200), face)
                assertTrue(pages.size > 1)
                assertEquals(2_000, pages.flatMap { page -> page.keys.map { it.key.text } }.toSet().size)
            }
            assertEquals(3, runBlocking { asynchronous.admin().scanTop(3, options()) }.keys.size)
            assertEquals(3, asynchronous.admin().scanTopFuture(3, options()).get().keys.size)
        }
    }

    @ParameterizedTest
    @MethodSource("ownStores")
    fun `reset of a list resets what is listed`(store: String) {
        limiter(store).use { limiter ->
            val asynchronous = limiter.asynchronous
            val users = { options().policy("api").keyPrefix("user:") }
            val faces =
                listOf(
                    { limiter.admin().resetListed(users()) },
                    { runBlocking { asynchronous.admin().resetListed(users()) } },
                    { asynchronous.admin().resetListedFuture(users()).get() },
                )
            for (key in listOf("user:1", "user:2", "guest:1")) limiter.check(key, "api")
            for (face in faces) {
                limiter.check("user:1", "api")
                val page = face()
                assertTrue(page.reset in 1..2 && page.unknown == 0L && page.cursor == null, "$page")
                assertEquals(listOf(4L, 3L), listOf("user:1", "guest:1").map { limiter.peek(it, "api").remaining })
            }
        }
    }

    @ParameterizedTest
    @MethodSource("ownStores")
    fun `an explanation names the quota that denies`(store: String) {
        limiter(store).use { limiter ->
            val quotas = "100/minute token_bucket; 2/hour fixed_window"
            repeat(2) { limiter.check("user:1", quotas) }
            val asked = request("user:1", quotas)
            val faces =
                listOf(
                    { limiter.admin().explain(asked) },
                    { runBlocking { limiter.asynchronous.admin().explain(asked) } },
                    { limiter.asynchronous.admin().explainFuture(asked).get() },
                )
            for (face in faces) {
                val explained = face()
                assertEquals(listOf(false, "quota", "user:1", 1L, "on"), explained.run { listOf(allowed, cause, key.text, cost, mode) })
                val (bucket, window) = explained.quotas
                assertEquals(listOf(true, false, 0L), listOf(bucket.admits, window.admits, bucket.retryAfterUs))
                assertTrue(window.words.startsWith("2 of 2 "), window.words)
                assertTrue(explained.retryAfterUs!! in window.retryAfterUs!! - 60_000_000..3_600_000_000)
            }
            assertNull(limiter.admin().explain("user:1", quotas, 3).retryAfterUs)
            // Nothing was spent.
            assertEquals(0L, limiter.peek("user:1", quotas).remaining)
            limiter.admin().block("user:1", Duration.ofMinutes(1), quotas)
            assertEquals("blocked", limiter.admin().explain("user:1", quotas).cause)
        }
    }

    @Test
    fun `an explanation of a request says which entry decides`() {
        Limiter(Settings(document = DOCUMENT)).use { limiter ->
            val alice = RequestAttributes(path = "/v1/items", attributes = mapOf("user" to "alice"))
            repeat(3) { limiter.decide(alice) }
            val faces =
                listOf(
                    { limiter.admin().explainRequest(alice) },
                    { runBlocking { limiter.asynchronous.admin().explainRequest(alice) } },
                    { limiter.asynchronous.admin().explainRequestFuture(alice).get() },
                )
            for (face in faces) {
                val explained = face()
                assertEquals(listOf(false, "quota", "document"), explained.run { listOf(allowed, cause, configuration?.source) })
                val policy = explained.policies.single()
                assertEquals(listOf("api", 1L, "alice"), policy.run { listOf(this.policy, rule, key.text) })
                assertEquals(listOf(false), policy.pool.map { it.allowed })
                assertEquals("pool", policy.pool.single().policy)
            }
            limiter.admin().setEntry("deny user alice", mapOf("by" to "ops", "why" to "abuse"))
            val entry = limiter.admin().explainRequest(alice).listEntry!!
            assertEquals(listOf("deny user alice", false, "ops", "abuse"), entry.run { listOf(this.entry, inDocument, by, why) })
        }
    }

    @ParameterizedTest
    @MethodSource("ownStores")
    fun `top keys are those that are denied most`(store: String) {
        limiter(store, mapOf("observe_keys" to "256")).use { limiter ->
            repeat(20_000) { limiter.check("user:1", "login") }
            val top = limiter.admin().topKeys(10)
            val first = top.denied.first()
            assertEquals(listOf("login", "user:1", 0L), listOf(first.policy, first.key.text, first.error))
            assertTrue(first.count > 0)
            assertEquals(256L to 60_000_000L, top.counters to top.halfLifeUs)
        }
        assertEquals(emptyList<TopKey>(), limiter("memory:").use { it.admin().topKeys(1).denied })
    }

    @Test
    fun `mistakes in options are refused`() {
        val limiter = limiter("memory:")
        val mistakes =
            mapOf(
                ListOptions().entries(0) to "entries of a list is 0: allowed is 1 or more",
                ListOptions().examined(-1) to "examined of a list is -1: allowed is 1 or more",
                ListOptions().pacePercent(101) to "pace_percent of a list is 101: allowed is 1 to 100",
                ListOptions().atLeastUsed(256) to "at_least_used of a list is 256: allowed is 0 to 255",
            )
        for ((options, message) in mistakes) {
            assertEquals(message, assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.admin().list(options) }.message)
        }
        val calls =
            listOf<() -> Any>(
                { limiter.admin().list(ListOptions().cursor("guess")) },
                { limiter.admin().explain("key", "unknown") },
                { limiter.admin().topKeys(-1) },
                { limiter.admin().scanTop(-1) },
                { runBlocking { limiter.asynchronous.admin().list(ListOptions().cursor("guess")) } },
            )
        for (call in calls) assertThrows(PolylimitException.InvalidArgument::class.java) { call() }
        limiter.close()
        assertThrows(PolylimitException.Closed::class.java) { limiter.admin().list() }
    }

    @Test
    fun `a lost store is unavailable`() {
        limiter("redis://127.0.0.1:1?deadline=50ms").use { limiter ->
            assertThrows(PolylimitException.StoreUnavailable::class.java) { limiter.admin().explain("key", "api") }
            assertThrows(PolylimitException.StoreUnavailable::class.java) { limiter.admin().list() }
            val failed = assertThrows(ExecutionException::class.java) { limiter.asynchronous.admin().listFuture().get() }
            assertTrue(failed.cause is PolylimitException.StoreUnavailable)
        }
    }

    companion object {
        private const val DOCUMENT = """
            polylimit = 1
            [policies.api]
            quotas = "2/hour fixed_window"
            elastic = { policy = "pool", key = "all" }
            [policies.pool]
            quotas = "0/hour"
            [[rules]]
            match = { path = "/v1/{*rest}" }
            apply = [{ policy = "api", key = "{user}" }]
        """

        /** Stores without keys of other tests. */
        @JvmStatic
        fun ownStores(): List<String> {
            val name = "kotlin-${ProcessHandle.current().pid()}-${System.nanoTime()}"
            return listOf("memory:", "local:$name?size=1MiB", "${System.getenv("POLYLIMIT_REDIS")}&prefix=$name")
        }
    }
}
