// Measures decisions on the JVM compared with bucket4j, in interleaved rounds of one run.
//
// Usage: bindings/uniffi/bench [--quick]. REDIS_URL names the server that both of them use.

import java.util.Locale
import java.util.concurrent.Callable
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicInteger
import kotlin.system.exitProcess

/** How the contenders are asked. */
private class Scenario(
    val store: String,
    val keys: Int,
    val threads: Int,
    val denied: Boolean = false,
)

private val SCENARIOS =
    listOf(
        Scenario("memory", keys = 1, threads = 1),
        Scenario("memory", keys = 1, threads = 2),
        Scenario("memory", keys = 1, threads = 1, denied = true),
        Scenario("memory", keys = 100_000, threads = 1),
        Scenario("redis", keys = 1, threads = 1),
        Scenario("redis", keys = 1, threads = 64),
        Scenario("redis", keys = 1, threads = 64, denied = true),
        Scenario("redis", keys = 100_000, threads = 1),
        Scenario("redis", keys = 100_000, threads = 64),
    )

// Of a billion a minute every request is admitted here, of one nearly none.
private const val PLENTY = 1_000_000_000L
private const val SCARCE = 1L

fun main(arguments: Array<String>) {
    val quick = arguments.contentEquals(arrayOf("--quick"))
    val url = System.getenv("REDIS_URL")
    if (url == null || (arguments.isNotEmpty() && !quick)) {
        System.err.println("usage: REDIS_URL=redis://... bench [--quick]")
        exitProcess(2)
    }
    val rounds = if (quick) 1 else 5
    val milliseconds = if (quick) 30L else 300L
    println("Microseconds a decision (wall time over all threads), medians of $rounds interleaved rounds of $milliseconds ms each.\n")
    println("| store | keys | threads | outcome | polylimit | bucket4j | ratio |")
    println("|---|---:|---:|---|---:|---:|---:|")
    for (scenario in SCENARIOS) {
        val (ours, peers) = scenario.run(url, rounds, milliseconds)
        val outcome = if (scenario.denied) "denied" else "allowed"
        val figures = String.format(Locale.ROOT, "%.2f | %.2f | %.1f", ours, peers, peers / ours)
        println("| ${scenario.store} | ${scenario.keys} | ${scenario.threads} | $outcome | $figures |")
    }
    println("\nA ratio above 1 is how many times as fast polylimit is. To repeat it: bindings/uniffi/bench")
}

private fun Scenario.run(
    url: String,
    rounds: Int,
    milliseconds: Long,
): List<Double> {
    val limit = if (denied) SCARCE else PLENTY
    val contenders =
        if (store == "memory") {
            listOf(polylimit("memory:", limit), bucket4jInMemory(limit))
        } else {
            // No call is answered by an outage policy, however busy the machine is.
            listOf(polylimit("$url?deadline=5s", limit), bucket4jInRedis(url, limit))
        }
    try {
        val names = List(keys) { "$store:$denied:$it" }
        val measured = contenders.associateWith { mutableListOf<Double>() }
        // What is compiled late, and what is read for the first time, belongs to the first rounds.
        for (round in -2 until rounds) {
            for ((contender, took) in measured) {
                val us = measure(contender, names, milliseconds)
                if (round >= 0) took += us
            }
        }
        return measured.values.map { it.sorted()[it.size / 2] }
    } finally {
        contenders.forEach(Contender::close)
    }
}

/** How many microseconds a decision takes. */
private fun Scenario.measure(
    contender: Contender,
    names: List<String>,
    milliseconds: Long,
): Double {
    val wrong = AtomicInteger()
    val pool = Executors.newFixedThreadPool(threads)
    try {
        val started = System.nanoTime()
        val ends = started + milliseconds * 1_000_000
        val decisions =
            pool
                .invokeAll(
                    List(threads) { worker ->
                        Callable {
                            // Each thread goes its own way through the keys.
                            var at = (worker + 1) * -0x61c8864680b583ebL
                            var count = 0L
                            do {
                                repeat(8) {
                                    at = at * 6364136223846793005L + 1442695040888963407L
                                    val allowed = contender.decide(names[((at ushr 33) % names.size).toInt()])
                                    if (allowed == denied) wrong.incrementAndGet()
                                    count++
                                }
                            } while (System.nanoTime() < ends)
                            count
                        }
                    },
                ).sumOf { it.get() }
        val took = System.nanoTime() - started
        // The first of a denied key is admitted, and one more in each minute.
        check(wrong.get() <= 2) { "${contender.name}: ${wrong.get()} of $decisions decisions came out otherwise" }
        return took / 1000.0 / decisions
    } finally {
        pool.shutdown()
    }
}
