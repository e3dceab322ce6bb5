package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import java.time.Duration
import java.util.concurrent.CountDownLatch
import java.util.concurrent.ExecutionException
import java.util.concurrent.FutureTask
import java.util.concurrent.TimeUnit

/** A thread that waits in the limiter can be interrupted, and then holds nothing. */
class InterruptionTest {
    /** Interrupts what waits on a thread of its own, and gives how it ended. */
    private fun interrupted(wait: () -> Any?): Throwable {
        val started = CountDownLatch(1)
        val task =
            FutureTask {
                started.countDown()
                wait()
            }
        val thread = Thread(task).apply { isDaemon = true }
        thread.start()
        started.await()
        // It has to be waiting: on the JVM, or in the native library.
        Thread.sleep(300)
        assertFalse(task.isDone)
        thread.interrupt()
        return assertThrows(ExecutionException::class.java) { task.get(SOON_SECONDS, TimeUnit.SECONDS) }.cause!!
    }

    @ParameterizedTest
    @MethodSource("polylimit.LimiterTest#stores")
    fun `interrupted acquire leaves the queue and spends nothing`(store: String) {
        val clock = ManualClock(1_700_000_000_000_000)
        val key = request("interruption ${System.nanoTime()}")
        val settings = Settings(store, listOf(Policy("api", "1/minute fixed_window")), clock = clock)
        Limiter(settings).use { limiter ->
            assertTrue(limiter.check(key).allowed)
            val end = interrupted { limiter.acquire(key, Duration.ofHours(1)) }
            assertEquals(InterruptedException::class.java, end.javaClass, "$end")
            clock.advance(Duration.ofMinutes(1))
            assertTrue(limiter.acquire(key, Duration.ofHours(1)).allowed)
            assertEquals(0L, limiter.peek(key).remaining)
            limiter.reset(key)
        }
    }

    @Test
    fun `interruption ends ready and doctor`() {
        Limiter.of(mapOf("api" to "1/s"), "redis://127.0.0.1:1").use { limiter ->
            val end = interrupted { limiter.ready(Duration.ofHours(1)) }
            assertEquals(InterruptedException::class.java, end.javaClass, "$end")
        }
    }

    @Test
    fun `thread interrupted before acquire does not wait`() {
        Limiter.of(mapOf("api" to "1/hour")).use { limiter ->
            limiter.check("key")
            Thread.currentThread().interrupt()
            assertThrows(InterruptedException::class.java) { limiter.acquire(request("key"), Duration.ofHours(2)) }
            assertFalse(Thread.currentThread().isInterrupted)
        }
    }

    private companion object {
        /** Much longer than an interruption takes, on a machine that is busy. */
        const val SOON_SECONDS = 20L
    }
}
