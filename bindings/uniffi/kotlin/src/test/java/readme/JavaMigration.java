package readme;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import polylimit.Decision;
import polylimit.Limiter;
import polylimit.Requests;

/** The example of docs/migrate/from-bucket4j.md in Java; {@link MigrationTest} compares and runs it. */
final class JavaMigration {
  private JavaMigration() {}

  static void run(String redis) throws Exception {
    // Bandwidth.builder().capacity(100).refillGreedy(100, Duration.ofMinutes(1)), for each user, in Redis
    try (Limiter limiter = Limiter.of(Map.of("api", "100/minute token_bucket"), redis)) {
      // bucket.tryConsumeAndReturnRemaining(1)
      Decision probe = limiter.check("user:42");
      if (!probe.getAllowed()) System.out.println("again in " + probe.getRetryAfter());
      // bucket.asBlocking().tryConsume(5, Duration.ofSeconds(2))
      boolean consumed = limiter.acquire(Requests.of("user:42", "api", 5L), Duration.ofSeconds(2)).getAllowed();
      // bucket.asAsync().tryConsume(1)
      CompletableFuture<Decision> later = limiter.getAsynchronous().checkFuture(Requests.of("user:42"));
      System.out.println(consumed + ", then " + later.get().getAllowed());
    }
  }
}
