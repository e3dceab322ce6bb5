import io.github.bucket4j.Bandwidth
import io.github.bucket4j.Bucket
import io.github.bucket4j.BucketConfiguration
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce
import io.lettuce.core.RedisClient
import io.lettuce.core.codec.ByteArrayCodec
import io.lettuce.core.codec.RedisCodec
import io.lettuce.core.codec.StringCodec
import polylimit.Limiter
import java.time.Duration
import java.util.concurrent.ConcurrentHashMap

/** Decides about a key by a token bucket of this number a minute: whether it is admitted. */
class Contender(
    val name: String,
    private val resource: AutoCloseable,
    val decide: (String) -> Boolean,
) : AutoCloseable by resource

fun polylimit(
    store: String,
    limit: Long,
): Contender {
    val limiter = Limiter.of(mapOf("bench" to "$limit/minute token_bucket"), store)
    return Contender("polylimit", limiter) { key ->
        val decision = limiter.check(key)
        check(decision.source == "store" || decision.source == "denial_cache") {
            "decided by ${decision.source}: ${decision.degraded}"
        }
        decision.allowed
    }
}

private fun bandwidth(limit: Long): Bandwidth =
    Bandwidth
        .builder()
        .capacity(limit)
        .refillGreedy(limit, Duration.ofMinutes(1))
        .build()

/** One bucket a key, in a map that is never cleared. */
fun bucket4jInMemory(limit: Long): Contender {
    val buckets = ConcurrentHashMap<String, Bucket>()
    return Contender("bucket4j", {}) { key ->
        buckets.computeIfAbsent(key) { Bucket.builder().addLimit(bandwidth(limit)).build() }.tryConsumeAndReturnRemaining(1).isConsumed
    }
}

/** It reads the state, and compares and swaps it until no other caller was faster. */
fun bucket4jInRedis(
    url: String,
    limit: Long,
): Contender {
    val client = RedisClient.create(url)
    val connection = client.connect(RedisCodec.of(StringCodec.UTF8, ByteArrayCodec.INSTANCE))
    val buckets =
        Bucket4jLettuce
            .casBasedBuilder(connection)
            .expirationAfterWrite(ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofSeconds(10)))
            .build()
    val configuration = BucketConfiguration.builder().addLimit(bandwidth(limit)).build()
    return Contender("bucket4j", { client.shutdown() }) { key ->
        buckets.builder().build(key) { configuration }.tryConsumeAndReturnRemaining(1).isConsumed
    }
}
