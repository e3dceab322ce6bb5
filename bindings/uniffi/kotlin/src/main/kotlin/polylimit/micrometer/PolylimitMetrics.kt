package polylimit.micrometer

import io.micrometer.core.instrument.FunctionCounter
import io.micrometer.core.instrument.Gauge
import io.micrometer.core.instrument.Meter
import io.micrometer.core.instrument.MeterRegistry
import io.micrometer.core.instrument.Tag
import io.micrometer.core.instrument.Tags
import io.micrometer.core.instrument.binder.MeterBinder
import polylimit.Instrument
import polylimit.Limiter
import polylimit.LimiterNames
import polylimit.Observation
import polylimit.observations
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.CopyOnWriteArrayList

/**
 * The metrics of a limiter as meters of Micrometer: `PolylimitMetrics(limiter).bindTo(registry)`. The registry keeps the limiter until
 * this is closed. docs/metrics.md describes each family.
 *
 * The numbers that a registry reads at once are those of one moment. A meter that was not there before, such as that of the first denial
 * of a policy, is there from the next collection on.
 *
 * @param limiter the limiter.
 * @param name the tag `limiter`, which distinguishes several limiters of a registry: then each has one.
 */
public class PolylimitMetrics
    @JvmOverloads
    constructor(
        private val limiter: Limiter,
        private val name: String? = null,
    ) : MeterBinder,
        AutoCloseable {
        private val bound = CopyOnWriteArrayList<BoundMeters>()

        override fun bindTo(registry: MeterRegistry) {
            LimiterNames.take(registry, name)
            bound.add(BoundMeters(limiter, name, registry))
        }

        /** Removes the meters from all registries. */
        override fun close() {
            for (meters in bound) {
                meters.remove()
                LimiterNames.give(meters.registry, name)
                bound.remove(meters)
            }
        }
    }

/** The meters of a limiter in one registry. They have no lock: a registry reads and adds meters under locks of its own. */
private class BoundMeters(
    private val limiter: Limiter,
    private val name: String?,
    val registry: MeterRegistry,
) {
    private data class Series(
        val name: String,
        val tags: Tags,
    )

    /** What all meters read in one collection. */
    private class Snapshot(
        val numbers: Map<Series, Number>,
        private val takenAt: Long,
        private val ends: Long,
    ) {
        private val read: MutableSet<Series> = ConcurrentHashMap.newKeySet()

        /** A meter that is read again belongs to a later collection; so does one that is read a while after. */
        fun isFreshFor(series: Series) = System.nanoTime() - takenAt < ends && read.add(series)
    }

    private val meters = ConcurrentHashMap<Series, Meter>()

    @Volatile private var isRemoved = false

    @Volatile private var snapshot = take()

    private fun take(): Snapshot {
        val started = System.nanoTime()
        val observations = limiter.metrics().flatMap { it.observations(name) }.associateBy(::seriesOf)
        val taken = System.nanoTime()
        if (!isRemoved) {
            for ((series, observation) in observations) meters.computeIfAbsentUnlocked(series) { register(series, observation) }
            for (gone in meters.keys - observations.keys) meters.remove(gone)?.let(registry::remove)
        }
        return Snapshot(observations.mapValues { it.value.number }, taken, READ_FOR * (taken - started))
    }

    private fun seriesOf(observation: Observation) =
        Series(observation.instrument.name, Tags.of(observation.labels.map { (label, value) -> Tag.of(label, value) }))

    private fun register(
        series: Series,
        observation: Observation,
    ): Meter {
        val instrument = observation.instrument
        val unit = if (instrument.unit == "s") SECONDS else null
        return if (instrument.kind == Instrument.Kind.GAUGE) {
            Gauge.builder(series.name) { number(series) }.tags(series.tags).description(instrument.help).baseUnit(unit).register(registry)
        } else {
            // The meter refers to its object weakly, and to the function strongly.
            FunctionCounter
                .builder(series.name, this) { _ -> this.number(series).toDouble() }
                .tags(series.tags)
                .description(instrument.help)
                .baseUnit(unit)
                .register(registry)
        }
    }

    private fun number(series: Series): Number {
        var current = snapshot
        if (!isRemoved && !current.isFreshFor(series)) {
            current = take()
            current.isFreshFor(series)
            snapshot = current
        }
        return current.numbers[series] ?: Double.NaN
    }

    fun remove() {
        isRemoved = true
        meters.values.forEach(registry::remove)
        meters.clear()
    }

    private companion object {
        /** A snapshot is read for this many times as long as it took to take, so that collections cost no more than a tenth of it. */
        const val READ_FOR = 10
        const val SECONDS = "seconds"
    }
}

/** Adds what is missing; the value is made without a lock, and may be made twice. */
private inline fun <K : Any, V : Any> ConcurrentHashMap<K, V>.computeIfAbsentUnlocked(
    key: K,
    make: () -> V,
) {
    if (!containsKey(key)) putIfAbsent(key, make())
}
