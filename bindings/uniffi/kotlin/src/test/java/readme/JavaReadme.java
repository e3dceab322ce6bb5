package readme;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import polylimit.Credentials;
import polylimit.Decision;
import polylimit.GuardOptions;
import polylimit.Limiter;
import polylimit.Requests;
import polylimit.servlet.RateLimitFilter;
import polylimit.servlet.RateLimitOptions;

/** The examples of the README in Java; {@link ReadmeTest} compares and runs them. */
final class JavaReadme {
  private JavaReadme() {}

  static void run(String redis) throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "100/minute"), redis)) {
      Decision decision = limiter.check("user:42");
      CompletableFuture<Decision> later = limiter.getAsynchronous().checkFuture(Requests.of("user:42", "api", 5L));
      System.out.println(decision.getRemaining() + ", then " + later.get().getRemaining());
    }
    try (Limiter models = Limiter.of(Map.of("tokens", "10000/minute", "requests", "60/minute"), redis)) {
      together(models);
    }
  }

  static Limiter renewed(String redis) {
    Limiter renewed = Limiter.builder()
        .store(redis)
        .policy("api", "100/minute")
        .credentials(() -> new Credentials(token("limits"), "limits"))
        .build();
    return renewed;
  }

  private static String token(String user) {
    return "token-of-" + user;
  }

  private static void together(Limiter models) {
    RateLimitOptions together = new RateLimitOptions(models)
        .policy("tokens", "requests")
        .cost("tokens", request -> Math.max(request.getIntHeader("x-max-tokens"), 0))
        .spent("tokens", (request, response) -> (Long) request.getAttribute("tokens"));
    new RateLimitFilter(together);
    GuardOptions options = GuardOptions.builder().policies("tokens", "requests").costsPerRequest("tokens").cost("requests", 1).build();
    models.guard(options);
  }
}
