package polylimit

import io.micrometer.core.instrument.Meter
import io.micrometer.core.instrument.simple.SimpleMeterRegistry
import io.micrometer.prometheusmetrics.PrometheusConfig
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry
import io.opentelemetry.sdk.OpenTelemetrySdk
import io.opentelemetry.sdk.metrics.SdkMeterProvider
import io.opentelemetry.sdk.metrics.data.MetricData
import io.opentelemetry.sdk.metrics.data.MetricDataType
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.micrometer.PolylimitMetrics as MicrometerMetrics
import polylimit.opentelemetry.PolylimitMetrics as OpenTelemetryMetrics

/** Metrics as values and as text, in the registries of Micrometer and in the SDK of OpenTelemetry. */
class MetricsTest {
    private fun limiter(store: String = "memory:") = Limiter.of(mapOf("api" to "2/hour fixed_window", "day" to "9/day"), store)

    private fun redis() = "${System.getenv("POLYLIMIT_REDIS")}&prefix=metrics-${System.nanoTime()}"

    private fun decide(limiter: Limiter) {
        repeat(3) { limiter.check("user:42", "api") }
        limiter.check("user:42", "day", 2)
    }

    /** A sample of a text: its name, its labels and its number. */
    private data class Sample(
        val name: String,
        val labels: Map<String, String>,
        val number: Double,
    )

    private fun samples(text: String): Set<Sample> =
        text
            .lines()
            .filter { it.isNotEmpty() && !it.startsWith("#") }
            .map { line ->
                val (name, labels, number) = LINE.matchEntire(line)!!.destructured
                Sample(name, LABEL.findAll(labels).associate { it.groupValues[1] to it.groupValues[2] }, number.toDouble())
            }.toSet()

    /** As the name of an instrument and of its unit, without what the formats of texts add to it. */
    private fun core(
        limiter: Limiter,
        name: String? = null,
    ): Set<Sample> =
        samples(limiter.metricsText())
            .map { sample ->
                val part = HISTOGRAM.find(sample.name)?.let { ".${it.groupValues[2]}" }.orEmpty()
                val family = if (part.isEmpty()) sample.name else HISTOGRAM.find(sample.name)!!.groupValues[1]
                val short = family.removePrefix("polylimit_").removeSuffix("_total").removeSuffix("_seconds")
                Sample("polylimit.$short$part", sample.labels + listOfNotNull(name?.let { "limiter" to it }), sample.number)
            }.toSet()

    private fun ofMicrometer(meters: List<Meter>) =
        meters
            .map { meter ->
                Sample(meter.id.name, meter.id.tags.associate { it.key to it.value }, meter.measure().first().value)
            }.toSet()

    private fun ofOpenTelemetry(metrics: Collection<MetricData>) =
        metrics
            .flatMap { metric ->
                val longs = metric.longSumData.points.map { it.attributes to it.value.toDouble() }
                val sums = metric.doubleSumData.points.map { it.attributes to it.value }
                val gauges = metric.doubleGaugeData.points.map { it.attributes to it.value }
                (longs + sums + gauges).map { (attributes, number) ->
                    Sample(metric.name, attributes.asMap().entries.associate { it.key.key to it.value.toString() }, number)
                }
            }.toSet()

    /** What a connection does in the background may be counted between two readings. */
    private fun assertSoonEqual(
        expected: () -> Set<Sample>,
        actual: () -> Set<Sample>,
    ) {
        repeat(600) {
            if (expected() == actual()) return
            Thread.sleep(50)
        }
        assertEquals(expected(), actual())
    }

    @Test
    fun `values are those of the text`() {
        limiter().use { limiter ->
            decide(limiter)
            val families = limiter.metrics()
            val decisions = families.single { it.name == "polylimit_decisions_total" }
            assertEquals("counter", decisions.kind)
            val denied = decisions.samples.single { it.labels["result"] == "denied" && it.labels["policy"] == "api" }
            assertEquals(MetricValue.Count(1), denied.value)
            assertTrue("polylimit_decisions_total{policy=\"api\",result=\"allowed\",source=\"store\"} 2" in limiter.metricsText())
            assertTrue(limiter.metricsText("openmetrics").endsWith("# EOF\n"))
            assertThrows(PolylimitException.InvalidArgument::class.java) { limiter.metricsText("json") }
            assertEquals(core(limiter), families.flatMap { it.observations(null) }.map { Sample(it.instrument.name, it.labels, it.number.toDouble()) }.toSet())
        }
    }

    @Test
    fun `Micrometer has the numbers of the text`() {
        for (store in listOf("memory:", redis())) {
            limiter(store).use { limiter ->
                val registry = SimpleMeterRegistry()
                val metrics = MicrometerMetrics(limiter, "edge")
                metrics.bindTo(registry)
                decide(limiter)
                // The meters of what was decided since then are there from the second collection on.
                registry.meters.forEach { it.measure().first().value }
                assertSoonEqual({ core(limiter, "edge") }) { ofMicrometer(registry.meters) }
                val admitted = registry.get("polylimit.decisions").tags("result", "allowed", "policy", "day").functionCounter()
                repeat(3) {
                    limiter.check("user:42", "day")
                    // On a busy machine the collection from before may still count; a meter that is read again starts another one.
                    admitted.count()
                    assertEquals(2.0 + it, admitted.count())
                }
                assertEquals("seconds", registry.get("polylimit.quota_period").tags("policy", "day").gauge().id.baseUnit)
                // The old texts of quotas are gone, and their meters with them.
                limiter.setPolicy("api", "5/minute")
                registry.meters.forEach { it.measure().first().value }
                assertSoonEqual({ core(limiter, "edge") }) { ofMicrometer(registry.meters) }
                metrics.close()
                assertEquals(emptyList<Meter>(), registry.meters)
            }
        }
    }

    @Test
    fun `the registry of Prometheus has the same families`() {
        limiter(redis()).use { limiter ->
            decide(limiter)
            val registry = PrometheusMeterRegistry(PrometheusConfig.DEFAULT)
            MicrometerMetrics(limiter).bindTo(registry)
            val told = samples(registry.scrape())
            // Its names have neither `_info` nor `_bucket`, and the histogram is three counters.
            val plain = { all: Set<Sample> ->
                all.filterNot { "store_duration" in it.name }.map { it.copy(name = it.name.removeSuffix("_info")) }.toSet()
            }
            assertEquals(plain(samples(limiter.metricsText())), plain(told))
            val sent = told.single { it.name == "polylimit_store_duration_count_total" }.number
            assertEquals(sent, told.single { it.name == "polylimit_store_duration_total" && it.labels["le"] == "+Inf" }.number)
        }
    }

    @Test
    fun `OpenTelemetry has the numbers of the text`() {
        for (store in listOf("memory:", redis())) {
            limiter(store).use { limiter ->
                val reader = InMemoryMetricReader.create()
                val provider = SdkMeterProvider.builder().registerMetricReader(reader).build()
                val openTelemetry = OpenTelemetrySdk.builder().setMeterProvider(provider).build()
                val registered = OpenTelemetryMetrics.register(limiter, openTelemetry, "edge")
                decide(limiter)
                assertSoonEqual({ core(limiter, "edge") }) { ofOpenTelemetry(reader.collectAllMetrics()) }
                val metrics = reader.collectAllMetrics()
                val decisions = metrics.single { it.name == "polylimit.decisions" }
                assertEquals(MetricDataType.LONG_SUM to true, decisions.type to decisions.longSumData.isMonotonic)
                assertEquals("s", metrics.single { it.name == "polylimit.quota_period" }.unit)
                val scope = decisions.instrumentationScopeInfo
                assertEquals("polylimit", scope.name)
                assertNotNull(scope.version)
                limiter(store).use { other ->
                    assertThrows(PolylimitException.InvalidArgument::class.java) { OpenTelemetryMetrics.register(other, openTelemetry, "edge") }
                    OpenTelemetryMetrics.register(other, openTelemetry).use {
                        assertSoonEqual({ core(limiter, "edge") + core(other) }) { ofOpenTelemetry(reader.collectAllMetrics()) }
                    }
                }
                registered.close()
                assertTrue(reader.collectAllMetrics().isEmpty())
                openTelemetry.close()
            }
        }
    }

    @Test
    fun `two limiters of a registry need names`() {
        val registry = SimpleMeterRegistry()
        limiter().use { first ->
            limiter().use { second ->
                MicrometerMetrics(first, "first").bindTo(registry)
                val again = assertThrows(PolylimitException.InvalidArgument::class.java) { MicrometerMetrics(second, "first").bindTo(registry) }
                assertEquals("a limiter of the name \"first\" is registered already: give each limiter a name of its own", again.message)
                MicrometerMetrics(second, "second").use { it.bindTo(registry) }
                MicrometerMetrics(second, "second").bindTo(registry)
                assertSoonEqual({ core(first, "first") + core(second, "second") }) { ofMicrometer(registry.meters) }
            }
        }
    }

    @Test
    fun `meters go on when nothing else refers to the binder`() {
        limiter().use { limiter ->
            val registry = SimpleMeterRegistry()
            MicrometerMetrics(limiter).bindTo(registry)
            System.gc()
            decide(limiter)
            registry.meters.forEach { it.measure().first().value }
            assertEquals(1.0, registry.get("polylimit.decisions").tags("result", "denied", "policy", "api").functionCounter().count())
        }
    }

    private companion object {
        val LINE = Regex("(\\w+?)(?:\\{(.*)})? (\\S+)")
        val LABEL = Regex("(\\w+)=\"((?:[^\"\\\\]|\\\\.)*)\"")
        val HISTOGRAM = Regex("^(polylimit_\\w+_seconds)_(bucket|count|sum)$")
    }
}
