package polylimit

import jakarta.servlet.DispatcherType
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.eclipse.jetty.ee10.servlet.FilterHolder
import org.eclipse.jetty.ee10.servlet.ServletContextHandler
import org.eclipse.jetty.ee10.servlet.ServletHolder
import org.eclipse.jetty.server.LocalConnector
import org.eclipse.jetty.server.Server
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.io.File
import java.lang.management.ManagementFactory
import java.lang.management.MemoryType
import java.time.Duration
import java.util.EnumSet
import java.util.concurrent.atomic.AtomicLongArray
import kotlin.concurrent.thread
import kotlin.system.exitProcess

private const val THREADS = 8
private const val INTERVALS = 6
private const val MIB = 1L shl 20

/** How much the heap or the process may be larger at the end than after the first intervals: 16 bytes a call would be more. */
private const val MAX_GROWTH = 24 * MIB

/** What a collection leaves, without what is allocated since. */
private fun heapBytes(): Long {
    System.gc()
    val pools = ManagementFactory.getMemoryPoolMXBeans().filter { it.type == MemoryType.HEAP }
    return pools.sumOf { it.collectionUsage?.used ?: 0 }
}

private fun residentBytes() = File("/proc/self/statm").readText().split(" ")[1].toLong() * 4_096

/** Jetty without sockets, with the filter before a servlet that answers with nothing. */
private class Filtered(
    limiter: Limiter,
) : AutoCloseable {
    private val server = Server()
    private val connector = LocalConnector(server)

    init {
        val servlet =
            object : HttpServlet() {
                override fun doGet(
                    request: HttpServletRequest,
                    response: HttpServletResponse,
                ) = Unit
            }
        val context = ServletContextHandler()
        context.addServlet(ServletHolder(servlet), "/*")
        val filter = RateLimitFilter(RateLimitOptions(limiter).key { "filter" })
        context.addFilter(FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST))
        server.addConnector(connector)
        server.handler = context
        server.start()
    }

    fun get(): String = connector.getResponse("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    override fun close() = server.stop()
}

/**
 * Loops the operations on eight threads for this number of seconds, and says whether the heap or the process grows: SECONDS STORE.
 * `mvn test -Dtest=SteadyLoadTest -DargLine=-Dpolylimit.load.seconds=60` takes longer than the usual test.
 */
fun main(arguments: Array<String>) {
    val (seconds, store) = arguments[0].toLong() to arguments[1]
    val counts = AtomicLongArray(THREADS * 16)
    Limiter.of(mapOf("api" to "1000000000000/minute"), store).use { limiter ->
        Filtered(limiter).use { filtered ->
            val wait = request("acquire")
            val operations =
                listOf<() -> Unit>(
                    { check(limiter.check("check").allowed) },
                    { check(limiter.acquire(wait, Duration.ofSeconds(20)).allowed) },
                    { check(filtered.get().startsWith("HTTP/1.1 200")) },
                )
            repeat(THREADS) { number ->
                thread(isDaemon = true) {
                    try {
                        while (true) {
                            operations[number % operations.size]()
                            counts.incrementAndGet(number * 16)
                        }
                    } catch (failure: Throwable) {
                        failure.printStackTrace()
                        exitProcess(1)
                    }
                }
            }
            // In the first intervals, code is compiled and pools are filled.
            val before = mutableListOf<Pair<Long, Long>>()
            var last = LongArray(operations.size)
            repeat(INTERVALS) {
                Thread.sleep(seconds * 1_000 / INTERVALS)
                val total = LongArray(operations.size)
                for (number in 0 until THREADS) total[number % operations.size] += counts[number * 16]
                val rates = total.zip(last) { now, then -> (now - then) * INTERVALS / seconds }
                last = total
                before += heapBytes() to residentBytes()
                val (heap, resident) = before.last()
                println("check, acquire, filter a second: $rates; heap ${heap / MIB} MiB, resident ${resident / MIB} MiB")
            }
            val (first, end) = before[INTERVALS / 2 - 1] to before.last()
            val grown = maxOf(end.first - first.first, end.second - first.second)
            println(if (grown <= MAX_GROWTH) "steady" else "grown by $grown bytes")
            // The threads are still at it.
            exitProcess(0)
        }
    }
}

/** Per-request calls leave nothing behind, however fast they follow each other. */
class SteadyLoadTest {
    @Test
    fun `eight threads without a pause do not make the heap or the process grow`() {
        val java = ProcessHandle.current().info().command().get()
        val classpath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"))
        val seconds = System.getProperty("polylimit.load.seconds", "6")
        for (store in listOf("memory:", System.getenv("POLYLIMIT_REDIS"))) {
            // One heap from the start, and one compiler that is soon done, so that what grows is what calls leave behind.
            val options = listOf("-Xmx64m", "-Xms64m", "-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1", "-cp", classpath)
            val builder = ProcessBuilder(listOf(java) + options + listOf("polylimit.SteadyLoadTestKt", seconds, store))
            builder.environment()["MALLOC_ARENA_MAX"] = "2"
            val process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start()
            val output = process.inputStream.readAllBytes().decodeToString()
            assertEquals(0, process.waitFor(), output)
            assertTrue(output.endsWith("steady\n"), output)
            println(output)
        }
    }
}
