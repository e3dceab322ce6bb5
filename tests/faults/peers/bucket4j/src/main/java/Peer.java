import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.Bucket;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.distributed.proxy.ProxyManager;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.codec.StringCodec;
import java.io.OutputStream;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Callers of bucket4j with Lettuce and their usual settings: see drive.py. */
final class Peer {
    private static final List<String> KEYS = List.of("k0", "k1", "k2", "k3");
    private static final long CAPACITY = 1_000_000_000;

    private static volatile boolean stopped;

    private Peer() {}

    public static void main(String[] arguments) throws Exception {
        RedisClient client = RedisClient.create("redis://127.0.0.1:" + arguments[0]);
        ProxyManager<String> manager =
                Bucket4jLettuce.casBasedBuilder(client.connect(RedisCodec.of(StringCodec.UTF8, ByteArrayCodec.INSTANCE)))
                        .expirationAfterWrite(ExpirationAfterWriteStrategy.fixedTimeToLive(Duration.ofDays(1)))
                        .build();
        // A bucket that refills nothing during the test, so that what it lacks is what was counted.
        Bandwidth bandwidth = Bandwidth.builder().capacity(CAPACITY).refillIntervally(1, Duration.ofDays(1)).build();
        BucketConfiguration configuration = BucketConfiguration.builder().addLimit(bandwidth).build();
        Stream<Bucket> buckets = KEYS.stream().map(key -> manager.builder().build(key, () -> configuration));
        List<Bucket> known = buckets.toList();
        List<Thread> callers = new ArrayList<>();
        for (Bucket bucket : known) {
            Thread caller = new Thread(() -> call(bucket));
            caller.start();
            callers.add(caller);
        }
        System.out.println("ready");
        System.in.transferTo(OutputStream.nullOutputStream());
        stopped = true;
        for (Thread caller : callers) {
            caller.join();
        }
        long used = known.stream().mapToLong(bucket -> CAPACITY - bucket.getAvailableTokens()).sum();
        System.out.println("used " + used);
        client.shutdown();
    }

    private static void call(Bucket bucket) {
        while (!stopped) {
            Instant at = Instant.now();
            long began = System.nanoTime();
            String outcome;
            try {
                outcome = bucket.tryConsume(1) ? "A" : "D";
            } catch (RuntimeException error) {
                outcome = "E";
            }
            long tookUs = (System.nanoTime() - began) / 1000;
            System.out.println(ChronoUnit.MICROS.between(Instant.EPOCH, at) + " " + tookUs + " " + outcome);
            try {
                Thread.sleep(1);
            } catch (InterruptedException ended) {
                return;
            }
        }
    }
}
