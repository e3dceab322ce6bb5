package readme

import io.micrometer.prometheusmetrics.PrometheusConfig
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry
import io.opentelemetry.api.OpenTelemetry
import io.opentelemetry.sdk.OpenTelemetrySdk
import io.opentelemetry.sdk.metrics.SdkMeterProvider
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.Limiter
import polylimit.ListOptions
import polylimit.opentelemetry.PolylimitMetrics.register
import polylimit.micrometer.PolylimitMetrics
import polylimit.request
import java.io.ByteArrayOutputStream
import java.io.File
import java.io.PrintStream
import java.time.Duration

/** The examples of docs/metrics.md, docs/listing.md and docs/reservations.md, word for word. */
class OperatingPagesTest {
    private fun metrics(openTelemetry: OpenTelemetry) {
        val limiter = Limiter.of(mapOf("api" to "100/minute; 1000/hour"))
        limiter.check("user:42")

        // What GET /metrics responds with, when only the limiter has metrics.
        val counted = "polylimit_decisions_total{policy=\"api\",result=\"allowed\",source=\"store\"} 1"
        println(counted in limiter.metricsText("openmetrics")) // true

        // With all other metrics of the program.
        val registry = PrometheusMeterRegistry(PrometheusConfig.DEFAULT)
        PolylimitMetrics(limiter).bindTo(registry)
        println(counted in registry.scrape()) // true

        // Observed whenever a reader of OpenTelemetry collects, until the result is closed.
        register(limiter, openTelemetry)
    }

    private fun listing() {
        val limiter = Limiter.of(mapOf("api" to "100/minute token_bucket; 20/hour"))
        limiter.charge("user:42", cost = 20)
        val explained = limiter.admin().explain("user:42")
        for (quota in explained.quotas) println("${quota.quota}: ${quota.words} (${if (quota.admits) "admits" else "denies"})")

        val options = ListOptions().policy("api").keyPrefix("user:").atLeastUsed(80)
        do {
            val page = limiter.admin().list(options)
            for (key in page.keys) println("${key.key.text}: ${key.usedPercent} %") // user:42: 100 %
            options.cursor(page.cursor)
        } while (page.cursor != null)
    }

    private fun reservations(limiter: Limiter) {
        val slot = request("tenant:7", "slots", cost = 0)
        val requests = listOf(slot, request("user:42", "requests"))
        val reserved = limiter.reserveTogether(requests, ttl = Duration.ofMinutes(2))
        if (reserved.allowed) {
            // the work
            limiter.commit(slot, reserved.id)
        }
    }

    private fun told(example: () -> Unit): List<String> {
        val (told, out) = ByteArrayOutputStream() to System.out
        System.setOut(PrintStream(told))
        try {
            example()
        } finally {
            System.setOut(out)
        }
        return told.toString().trim().lines()
    }

    @Test
    fun `the example of metrics runs`() {
        val reader = InMemoryMetricReader.create()
        val provider = SdkMeterProvider.builder().registerMetricReader(reader).build()
        val openTelemetry = OpenTelemetrySdk.builder().setMeterProvider(provider).build()
        assertEquals(listOf("true", "true"), told { metrics(openTelemetry) })
        assertTrue(reader.collectAllMetrics().any { it.name == "polylimit.decisions" })
    }

    @Test
    fun `the example of lists runs`() {
        val expected =
            listOf(
                "100/minute token_bucket: debt 20 of 100, repays 1.67/s (admits)",
                "20/hour: 20 of 20 in the last 1h, counted in 10 parts (denies)",
                "user:42: 100 %",
            )
        assertEquals(expected, told { listing() })
    }

    @Test
    fun `the example of reservations runs`() {
        Limiter.of(mapOf("slots" to "20 concurrent", "requests" to "100/minute")).use { limiter ->
            reservations(limiter)
            assertEquals(20L, limiter.peek(request("tenant:7", "slots", cost = 0)).remaining)
            assertEquals(99L, limiter.peek("user:42", "requests").remaining)
        }
    }

    @Test
    fun `the pages have no other examples`() {
        val source = File("src/test/kotlin/readme/OperatingPagesTest.kt").readLines().map(String::trim)
        for (name in listOf("metrics.md", "listing.md", "reservations.md")) {
            val page = File("../../../docs/$name").readText()
            val (example) = Regex("^```kotlin\n(.*?)^```$", setOf(RegexOption.MULTILINE, RegexOption.DOT_MATCHES_ALL)).findAll(page).toList()
            for (line in example.groupValues[1].lines().map(String::trim).filter(String::isNotEmpty)) assertTrue(line in source, line)
        }
    }
}
