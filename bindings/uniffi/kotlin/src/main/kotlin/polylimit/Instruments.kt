package polylimit

import java.math.BigDecimal
import java.util.WeakHashMap

/**
 * How other libraries call a family of metrics: its name with `polylimit.` for `polylimit_` and without `_total`; the unit of durations
 * is not part of it. They have no histogram that is observed, so that a histogram is three counters: its buckets, its count and its sum.
 *
 * @property unit `s`, or nothing.
 */
internal class Instrument(
    val name: String,
    val unit: String,
    val help: String,
    val kind: Kind,
) {
    enum class Kind { COUNTER, SUM, GAUGE }
}

/** A number of an instrument. */
internal class Observation(
    val instrument: Instrument,
    val labels: Map<String, String>,
    val number: Number,
)

internal fun MetricFamily.instruments(): List<Instrument> {
    val whole = "polylimit." + name.removePrefix("polylimit_").removeSuffix("_total")
    val unit = if (whole.endsWith("_seconds")) "s" else ""
    val short = whole.removeSuffix("_seconds")
    return when (kind) {
        "counter" -> listOf(Instrument(short, unit, help, Instrument.Kind.COUNTER))
        "gauge" -> listOf(Instrument(short, unit, help, Instrument.Kind.GAUGE))
        else ->
            listOf(
                Instrument("$short.bucket", "", help, Instrument.Kind.COUNTER),
                Instrument("$short.count", "", help, Instrument.Kind.COUNTER),
                Instrument("$short.sum", unit, help, Instrument.Kind.SUM),
            )
    }
}

/** The numbers of a family; the limiter's name is the label `limiter` of each. */
internal fun MetricFamily.observations(limiter: String?): List<Observation> {
    val instruments = instruments()
    return samples.flatMap { sample ->
        val labels = if (limiter == null) sample.labels else sample.labels + ("limiter" to limiter)
        when (val value = sample.value) {
            is MetricValue.Count -> listOf(Observation(instruments.first(), labels, value.count))
            is MetricValue.Number -> listOf(Observation(instruments.first(), labels, value.number))
            is MetricValue.Histogram -> {
                val (bucket, count, sum) = instruments
                val bounds = value.buckets.map { plain(it.bound) to it.count } + ("+Inf" to value.count)
                val buckets = bounds.map { (bound, number) -> Observation(bucket, labels + ("le" to bound), number) }
                buckets + Observation(count, labels, value.count) + Observation(sum, labels, value.sum)
            }
        }
    }
}

/** A bound as the core's text has it, such as `0.0001` and `1.0`. */
private fun plain(bound: Double): String {
    val digits = BigDecimal.valueOf(bound).stripTrailingZeros()
    return (if (digits.scale() < 1) digits.setScale(1) else digits).toPlainString()
}

/** The names of the limiters whose metrics a registry or a meter has. Only one of them may have none. */
internal object LimiterNames {
    private val taken = WeakHashMap<Any, MutableSet<String?>>()

    fun take(
        owner: Any,
        name: String?,
    ) = synchronized(taken) {
        if (!taken.getOrPut(owner, ::mutableSetOf).add(name)) {
            val known = if (name == null) "without a name" else "of the name \"$name\""
            throw PolylimitException.InvalidArgument("a limiter $known is registered already: give each limiter a name of its own")
        }
    }

    fun give(
        owner: Any,
        name: String?,
    ) = synchronized(taken) { taken[owner]?.remove(name) }
}
