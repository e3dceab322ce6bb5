package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.io.File
import java.time.Duration
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit

/** Prints where a decision of the local store that is named comes from, as another process. */
fun main(arguments: Array<String>) {
    Limiter.of(mapOf("api" to "9/hour"), arguments.single()).use { print(it.check("k").source) }
}

/** Closing a limiter gives everything back, whether or not the garbage collector comes by. */
class LifeTest {
    private fun openCheckClose(store: String): Limiter {
        val limiter = Limiter.of(mapOf("api" to "1000000/hour"), store)
        limiter.use { assertEquals("store", it.check("life").source) }
        return limiter
    }

    private fun held(): Map<String, Int> =
        mapOf(
            "descriptors" to File("/proc/self/fd").list()!!.size,
            "native threads" to File("/proc/self/task").listFiles()!!.count { isOurs(it) },
            "mappings" to File("/proc/self/maps").readLines().count { "polylimit-" in it },
        )

    /** The JVM's own come and go. */
    private fun isOurs(task: File) = runCatching { File(task, "comm").readText().startsWith("polylimit") }.getOrDefault(false)

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `closed limiters release their resources`(store: String) {
        repeat(500) { openCheckClose(store) }
        System.gc()
        val before = held()
        val resident = residentBytes()
        // These are referred to all the time, the others until the garbage collector comes by.
        val kept = List(KEPT) { openCheckClose(store) }
        repeat(LIMITERS - KEPT) { openCheckClose(store) }
        var after = held()
        // Threads that were asked to end are given a while for it.
        val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (before.any { (what, count) -> after.getValue(what) > count } && System.nanoTime() < deadline) {
            Thread.sleep(50)
            after = held()
        }
        for ((what, count) in before) assertTrue(after.getValue(what) <= count + 2, "$what: $count, then ${after[what]}")
        // The heap is there from the start, so what grows is native; the collector's cleaner takes a while.
        System.gc()
        // 3 KB are the limiter's counts, which can be read after it is closed.
        val grown = (residentBytes() - resident) / LIMITERS
        assertTrue(grown < 20_480, "$grown bytes for each")
        assertThrows(PolylimitException.Closed::class.java) { kept.last().check("life") }
    }

    @Test
    fun `closed limiters release the shared file for other processes`() {
        val store = "local:kotlin-life-${ProcessHandle.current().pid()}?size=1MiB"
        val kept = List(KEPT) { openCheckClose(store) }
        val java = ProcessHandle.current().info().command().get()
        val classpath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"))
        val other = ProcessBuilder(java, "-cp", classpath, "polylimit.LifeTestKt", store).redirectError(ProcessBuilder.Redirect.INHERIT)
        val process = other.start()
        assertEquals("store", process.inputStream.readAllBytes().decodeToString())
        assertEquals(0, process.waitFor())
        assertEquals(KEPT, kept.size)
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `every operation on a closed limiter fails with closed`(store: String) {
        val limiter = Limiter.of(mapOf("api" to "9/hour"), store)
        limiter.check("life")
        repeat(2) { limiter.close() }
        val second = Duration.ofSeconds(1)
        val operations =
            listOf<() -> Any>(
                { limiter.check("k") },
                { limiter.peek("k") },
                { limiter.take("k") },
                { limiter.charge("k") },
                { limiter.refund("k") },
                { limiter.reset("k") },
                { limiter.acquire(request("k"), second) },
                { limiter.checkTogether(listOf(request("k"))) },
                { limiter.peekTogether(listOf(request("k"))) },
                { limiter.reserveTogether(listOf(request("k"))) },
                { limiter.checkMany(listOf(request("k"))).single().get() },
                { limiter.ready(second) },
                { limiter.admin().doctor() },
                { limiter.policyFor() },
                { limiter.setPolicy("api", "5/hour") },
            )
        for ((at, operation) in operations.withIndex()) {
            assertThrows(PolylimitException.Closed::class.java, { operation() }, "operation $at")
        }
        val future = limiter.asynchronous.acquireFuture(request("k"), second)
        assertClosed(future)
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `closed limiter describes itself`(store: String) {
        val document = """{"polylimit": 1, "policies": {"api": {"quotas": "9/hour"}}}"""
        val limiter = Limiter(Settings(store, options = mapOf("observe_keys" to "16"), document = document))
        limiter.check("life")
        limiter.close()
        assertEquals("9/hour", limiter.policy("api")?.quotas)
        assertEquals(listOf("api"), limiter.policies.map { it.name })
        assertEquals("document", limiter.admin().configuration?.source)
        assertTrue("polylimit_decisions_total{policy=\"api\"," in limiter.metricsText())
        assertTrue(limiter.stats.isNotEmpty() && limiter.metrics().isNotEmpty())
        assertTrue(limiter.admin().topKeys(9).counters > 0)
    }

    private fun assertClosed(future: CompletableFuture<*>) {
        val failed = assertThrows(ExecutionException::class.java) { future.get(20, TimeUnit.SECONDS) }
        assertEquals(PolylimitException.Closed::class.java, failed.cause?.javaClass)
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `close ends a waiting acquire`(store: String) {
        val limiter = Limiter.of(mapOf("api" to "1/hour"), store)
        val key = request("closing ${System.nanoTime()}")
        assertTrue(limiter.check(key).allowed)
        val hours = Duration.ofHours(10)
        val waiting = listOf(CompletableFuture.supplyAsync { limiter.acquire(key, hours) }, limiter.asynchronous.acquireFuture(key, hours))
        Thread.sleep(300)
        limiter.close()
        waiting.forEach(::assertClosed)
    }

    private companion object {
        /** 10,000 where `make faults` runs this. */
        val LIMITERS = if (System.getenv("POLYLIMIT_FAULTS") == null) 2_000 else 10_000

        /** More than processes can use a local store at once. */
        const val KEPT = 1_025

        fun residentBytes() = File("/proc/self/statm").readText().split(" ")[1].toLong() * 4_096
    }
}
