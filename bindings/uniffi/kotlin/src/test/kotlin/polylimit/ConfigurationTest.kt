package polylimit

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.nio.file.Files
import java.time.Duration

class ConfigurationTest {
    private val hour = Duration.ofHours(1)

    private fun limiter(clock: ManualClock? = null) = Limiter(Settings(document = DOCUMENT, clock = clock))

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `blocks and headroom work in every store`(store: String) {
        Limiter.of(mapOf("api" to "10/hour fixed_window excess=2"), store).use { limiter ->
            val key = "key ${System.nanoTime()}"
            assertFalse(limiter.check(key, cost = 9, headroom = 50).allowed)
            assertTrue(limiter.check(key, cost = 5).allowed)
            assertEquals("quota", limiter.check(key, cost = 5, headroom = 50).cause)
            assertTrue(limiter.check(key, cost = 6).crossed)
            assertEquals(0L, limiter.admin().block(key, hour).remaining)
            val blocked = limiter.peek(key)
            assertEquals("blocked", blocked.cause)
            assertTrue(blocked.retryAfter!! > Duration.ofMinutes(59))
            limiter.admin().unblock(key)
            assertNull(limiter.peek(key, headroom = 0).cause)
            runBlocking {
                limiter.asynchronous.admin().block(request(key), hour)
                assertEquals("blocked", limiter.asynchronous.check(request(key)).cause)
                limiter.asynchronous.admin().unblock(request(key))
            }
            limiter.asynchronous.admin().blockFuture(request(key), hour).get()
            assertFalse(limiter.reserve(key).allowed)
            limiter.asynchronous.admin().unblockFuture(request(key)).get()
            assertTrue(limiter.check(key).allowed)
            limiter.reset(key)
        }
    }

    @Test
    fun `bad headroom and times are refused`() =
        limiter().use { limiter ->
            for (headroom in listOf(-1, 100, 1000)) {
                assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.check("key", "api", headroom = headroom) }
            }
            for (time in listOf(Duration.ofNanos(1_000), Duration.ofDays(367), Duration.ofSeconds(-1))) {
                assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.admin().block("key", time, "api") }
            }
            assertNull(Limiter.of(mapOf("api" to "1/s")).use { it.admin().configuration })
        }

    @Test
    fun `a document decides about requests`() {
        limiter().use { limiter ->
            val asynchronous = limiter.asynchronous
            val alice = RequestAttributes("GET", "/v1/items?page=2", "192.0.2.7:443", listOf("X-Api-Key" to "k1"), mapOf("user" to "alice"))
            val found = limiter.admin().matching(alice).single()
            assertEquals("api", found.policy)
            assertEquals("user=alice", found.key.decodeToString())
            assertEquals(1L to 20, found.cost to found.headroom)
            assertFalse("alice" in "$alice $found ${limiter.decide(alice)}")
            assertTrue(runBlocking { asynchronous.decide(alice) }.allowed)
            assertTrue(asynchronous.decideFuture(alice).get().allowed)
            val denied = generateSequence { limiter.decide(alice) }.first { !it.allowed }
            assertEquals("quota" to 429, denied.cause to denied.status)
            assertEquals(7L, limiter.peek("user=carol", "api", plan = "gold").remaining)
            val mallory = RequestAttributes(path = "/v1/items", attributes = mapOf("user" to "mallory"))
            val listed = limiter.decide(mallory)
            assertEquals(listOf("deny_list", 403, null), listOf(listed.cause, listed.status, listed.retryAfter))
            assertTrue(listed.decisions.isEmpty())
        }
    }

    @Test
    fun `a decision reserves where the policy counts concurrency`() =
        limiter().use { limiter ->
            val job = RequestAttributes(path = "/jobs", peer = "192.0.2.7")
            val first = limiter.decide(job, id = "job-1", ttl = Duration.ofSeconds(10))
            val made = first.decisions.single()
            assertEquals("job-1", made.reservation)
            assertEquals("concurrency", limiter.decide(job).cause)
            assertTrue(limiter.cancel(Request(made.match.key, made.match.policy), "job-1").found)
            assertTrue(limiter.decide(job).allowed)
        }

    @Test
    fun `documents and entries change while the limiter runs`() {
        limiter().use { limiter ->
            val before = limiter.admin().configuration!!
            assertEquals("document" to 64, before.source to before.digest.length)
            assertEquals(Duration.ZERO, before.age)
            assertNotNull(before.appliedAt)
            val refused =
                assertThrows(PolylimitException.InvalidArgument::class.java) {
                    limiter.admin().setDocument("polylimit = 1\nnonsense = 2\n")
                }
            assertTrue(refused.message.orEmpty().startsWith("line 2, column "), refused.message)
            assertEquals(before.version, limiter.admin().configuration!!.version)
            val bob = RequestAttributes(path = "/v1/", attributes = mapOf("user" to "bob"))
            limiter.admin().setEntry("deny user bob", mapOf("by" to "ann", "why" to "\"spam\"\n\\"))
            assertEquals("deny_list", limiter.decide(bob).cause)
            runBlocking {
                limiter.asynchronous.admin().deleteEntry("deny user bob")
                limiter.asynchronous.admin().setEntry("override api user=bob", mapOf("numbers" to "1/hour"))
            }
            assertEquals(1L, limiter.peek("user=bob", "api").remaining)
            limiter.asynchronous.admin().setEntryFuture("override api user=bob", """{"numbers":"2/hour"}""").get()
            val status = limiter.asynchronous.admin().deleteEntryFuture("override api user=bob").get()
            limiter.admin().deleteEntry("override api user=bob")
            assertTrue(status.version > before.version)
            assertEquals(status.digest, limiter.admin().waitForVersion(status.version, hour).digest)
            assertEquals(status.digest, limiter.asynchronous.admin().waitForVersionFuture(status.version, hour).get().digest)
            assertThrows(PolylimitException.StoreUnavailable::class.java) {
                runBlocking { limiter.asynchronous.admin().waitForVersion(status.version + 9, Duration.ofMillis(1)) }
            }
            assertTrue(limiter.admin().setDocument("polylimit = 1\n[policies]\n").version > status.version)
            assertTrue(limiter.admin().matching(bob).isEmpty())
        }
    }

    @Test
    fun `a candidate is counted`() =
        limiter().use { limiter ->
            assertNull(limiter.admin().candidateCounts("api"))
            repeat(3) { limiter.check("key", "tried") }
            val counts = limiter.admin().candidateCounts("tried")!!
            assertEquals(listOf(1L, 0L, 1L, 1L), with(counts) { listOf(bothAllow, onlyLiveDenies, onlyCandidateDenies, bothDeny) })
        }

    @Test
    fun `a document is published to Redis and followed`() {
        OwnRedis().use { redis ->
            Limiter(Settings(redis.url)).use { it.ready(Duration.ofSeconds(60)) }
            val options = mapOf("configuration" to "store", "deadline" to "30s")
            Limiter(Settings(redis.url, options = options)).use { limiter ->
                Limiter(Settings(redis.url, options = options)).use { other ->
                    val status = limiter.admin().publish(DOCUMENT, PublishOptions(by = "ann", why = "first"))
                    assertEquals("store", status.source)
                    assertEquals(status.digest, other.admin().waitForVersion(status.version, Duration.ofSeconds(60)).digest)
                    assertThrows(PolylimitException.InvalidArgument::class.java) {
                        limiter.admin().publish(DOCUMENT, PublishOptions(expectedVersion = 7))
                    }
                    assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.admin().setDocument(DOCUMENT) }
                    val bare = assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.admin().publish("polylimit = 1") }
                    assertTrue("it may be incomplete" in bare.message.orEmpty(), bare.message)
                    val entry = limiter.admin().setEntry("deny user bob", emptyMap())
                    val there = other.admin().waitForVersion(entry.version, Duration.ofSeconds(60))
                    val expecting = PublishOptions(expectedVersion = there.documentVersion)
                    assertEquals(listOf(1L, 2L), listOf(there.documentVersion, other.admin().publish(DOCUMENT, expecting).documentVersion))
                    assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.admin().publish(DOCUMENT, expecting) }
                    val bob = RequestAttributes(path = "/v1/", attributes = mapOf("user" to "bob"))
                    assertEquals("deny_list", other.decide(bob).cause)
                    runBlocking { limiter.asynchronous.admin().publish("polylimit = 1\n[policies]\n") }
                    val last = limiter.asynchronous.admin().publishFuture(DOCUMENT).get()
                    assertTrue(last.version > entry.version)
                }
            }
        }
    }

    @Test
    fun `a document in a file is followed`() {
        val file = Files.createTempFile("polylimit", ".toml")
        Files.writeString(file, DOCUMENT)
        try {
            Limiter(Settings(options = mapOf("configuration" to "file:$file"))).use { limiter ->
                assertEquals("file:$file", limiter.admin().configuration!!.source)
                assertTrue(limiter.decide(RequestAttributes(path = "/v1/")).allowed)
            }
            val refused =
                assertThrows(PolylimitException.InvalidArgument::class.java) {
                    Limiter(Settings(options = mapOf("configuration" to "elsewhere")))
                }
            assertTrue("elsewhere" in refused.message.orEmpty(), refused.message)
        } finally {
            Files.delete(file)
        }
    }

    @Test
    fun `a limiter starts from the copy of a file`() {
        val folder = Files.createTempDirectory("polylimit")
        val (file, copy) = folder.resolve("limits.toml") to folder.resolve("copy")
        Files.writeString(file, DOCUMENT)
        val settings = Settings(options = mapOf("configuration" to "file:$file", "copy" to "$copy"))
        val first =
            Limiter(settings).use { limiter ->
                val end = System.nanoTime() + Duration.ofMinutes(1).toNanos()
                while (Files.notExists(copy)) {
                    assertTrue(System.nanoTime() < end)
                    Thread.sleep(1)
                }
                limiter.admin().configuration!!
            }
        Files.delete(file)
        assertThrows(PolylimitException.InvalidArgument::class.java) { Limiter(Settings(options = settings.options - "copy")) }
        Limiter(settings).use { limiter -> assertEquals(first.digest, limiter.admin().configuration!!.digest) }
        Files.delete(copy)
        Files.delete(folder)
    }

    private companion object {
        val DOCUMENT =
            """
            polylimit = 1
            [policies.api]
            quotas = "4/hour fixed_window"
            plans = { gold = "7/hour fixed_window" }
            [policies.jobs]
            quotas = "1 concurrent"
            [policies.tried]
            quotas = "2/hour fixed_window"
            candidate = { quotas = "1/hour fixed_window", compare = 1000 }
            [[rules]]
            match = { path = "/v1/{*rest}" }
            apply = [{ policy = "api", key = "user={user}", headroom = 20 }]
            [[rules]]
            match = { path = "/jobs" }
            apply = [{ policy = "jobs", key = "{client}" }]
            [lists]
            deny = ["user mallory"]
            """.trimIndent()
    }
}
