package polylimit.opentelemetry

import io.opentelemetry.api.OpenTelemetry
import io.opentelemetry.api.common.Attributes
import io.opentelemetry.api.metrics.Meter
import io.opentelemetry.api.metrics.ObservableDoubleMeasurement
import io.opentelemetry.api.metrics.ObservableLongMeasurement
import io.opentelemetry.api.metrics.ObservableMeasurement
import polylimit.Instrument
import polylimit.Limiter
import polylimit.LimiterNames
import polylimit.Observation
import polylimit.instruments
import polylimit.observations

/**
 * The metrics of limiters as observable instruments of OpenTelemetry. The instrument of the family `polylimit_decisions_total` is
 * `polylimit.decisions`, and the labels of its samples are attributes; docs/metrics.md describes each family.
 */
public object PolylimitMetrics {
    /**
     * Observes the metrics of a limiter at each collection, until the result is closed; the meter keeps the limiter until then.
     *
     * @param name the attribute `limiter`, which distinguishes several limiters; one may have none.
     */
    @JvmStatic
    @JvmOverloads
    public fun register(
        limiter: Limiter,
        openTelemetry: OpenTelemetry,
        name: String? = null,
    ): AutoCloseable {
        val families = limiter.metrics()
        val version = families.firstNotNullOf { family -> family.samples.firstNotNullOfOrNull { it.labels["version"] } }
        val meter = openTelemetry.meterBuilder("polylimit").setInstrumentationVersion(version).build()
        LimiterNames.take(meter, name)
        val measurements = families.flatMap { it.instruments() }.associate { it.name to measurement(meter, it) }
        val callback = Runnable { limiter.metrics().flatMap { it.observations(name) }.forEach { record(measurements, it) } }
        val all = measurements.values.toTypedArray()
        val batch = meter.batchCallback(callback, all.first(), *all.drop(1).toTypedArray())
        return AutoCloseable {
            batch.close()
            LimiterNames.give(meter, name)
        }
    }

    private fun measurement(
        meter: Meter,
        instrument: Instrument,
    ): ObservableMeasurement {
        val (name, unit, help) = Triple(instrument.name, instrument.unit, instrument.help)
        return when (instrument.kind) {
            Instrument.Kind.COUNTER -> meter.counterBuilder(name).setUnit(unit).setDescription(help).buildObserver()
            Instrument.Kind.SUM -> meter.counterBuilder(name).setUnit(unit).setDescription(help).ofDoubles().buildObserver()
            Instrument.Kind.GAUGE -> meter.gaugeBuilder(name).setUnit(unit).setDescription(help).buildObserver()
        }
    }

    private fun record(
        measurements: Map<String, ObservableMeasurement>,
        observation: Observation,
    ) {
        val attributes = Attributes.builder()
        observation.labels.forEach { (label, value) -> attributes.put(label, value) }
        val measurement = measurements[observation.instrument.name]
        // The SDK has one class for both kinds of numbers.
        if (observation.instrument.kind == Instrument.Kind.COUNTER) {
            (measurement as ObservableLongMeasurement).record(observation.number.toLong(), attributes.build())
        } else {
            (measurement as ObservableDoubleMeasurement).record(observation.number.toDouble(), attributes.build())
        }
    }
}
