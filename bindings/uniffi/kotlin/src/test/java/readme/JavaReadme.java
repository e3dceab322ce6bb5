package readme;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import polylimit.Decision;
import polylimit.Limiter;
import polylimit.Requests;

/** The examples of the README in Java; {@link ReadmeTest} compares and runs them. */
final class JavaReadme {
  private JavaReadme() {}

  static void run(String redis) throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "100/minute"), redis)) {
      Decision decision = limiter.check("user:42");
      CompletableFuture<Decision> later = limiter.getAsynchronous().checkFuture(Requests.of("user:42", "api", 5L));
      System.out.println(decision.getRemaining() + ", then " + later.get().getRemaining());
    }
  }
}
