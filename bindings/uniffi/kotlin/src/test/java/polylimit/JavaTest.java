package polylimit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import polylimit.servlet.RateLimitFilter;
import polylimit.servlet.RateLimitOptions;

class JavaTest {
  @Test
  void javaHasBothFaces() throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "3/minute"))) {
      assertTrue(limiter.check("user:42").getAllowed());
      assertEquals(0L, limiter.check("user:42", "api", 2L).getRemaining());
      Decision denied = limiter.getAsynchronous().checkFuture(Requests.of("user:42")).get();
      assertFalse(denied.getAllowed());
      assertTrue(denied.getRetryAfter().compareTo(denied.getResetAfter()) <= 0);
      QuotaUsage quota = denied.getQuotas().get(0);
      assertFalse(quota.getAllowed());
      assertEquals(denied.getRetryAfter(), quota.getRetryAfter());
      PolylimitException refused =
          assertThrows(PolylimitException.class, () -> limiter.check("user:42", "unknown"));
      assertEquals("invalid_argument", Errors.getCode(refused));
      for (int again = 0; again < 2; again++) {
        var future = limiter.getAsynchronous().checkFuture(Requests.of("user:42", "unknown"));
        Throwable cause = assertThrows(ExecutionException.class, future::get).getCause();
        assertInstanceOf(PolylimitException.InvalidArgument.class, cause);
      }
    }
  }

  @Test
  void javaHoldsReservations() throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "1 concurrent; 100/hour"))) {
      var commits = new ReserveOptions(Duration.ofSeconds(10), null, null, true);
      try (Reservation held = limiter.reserve("user:42", "api", 10L, commits)) {
        assertTrue(held.getAllowed());
        assertFalse(limiter.reserve("user:42").getAllowed());
      }
      try (Reservation held = limiter.reserve("user:42")) {
        assertEquals(70L, held.commit(20L).getQuotas().get(1).getRemaining());
      }
      AsyncReservation held = limiter.getAsynchronous().reserveFuture(Requests.of("user:42")).get();
      assertTrue(limiter.commit("user:42", held.getId(), 5L).getFound());
      assertFalse(held.commitFuture().get().getFound());
    }
  }

  @Test
  void javaMakesResponsesItself() throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "1/minute"))) {
      var admitted = new Outcome(limiter.policyFor("api"), limiter.check("user:42"));
      assertEquals("\"api\";q=1;w=60", Headers.fields(admitted).get("ratelimit-policy"));
      assertNull(Headers.problemOf(admitted));
      var denied = new Outcome(limiter.policyFor("api"), limiter.check("user:42"));
      assertEquals(Set.of("retry-after"), Headers.fields(denied, "none").keySet());
      assertEquals(429, Headers.problemOf(List.of(admitted, denied)).getStatus());
    }
  }

  @Test
  void javaHasReports() throws Exception {
    try (Limiter limiter = Limiter.of(Map.of("api", "2/hour fixed_window"))) {
      limiter.charge("user:42", "api", 2L);
      var options = new ListOptions().policy("api").keyPrefix("user:").atLeastUsed(100);
      ListedKey listed = limiter.admin().list(options).getKeys().get(0);
      assertEquals("user:42", listed.getKey().getText());
      assertEquals(100L, listed.getUsedPercent());
      assertFalse(limiter.admin().explain("user:42").getAllowed());
      assertEquals(1, limiter.getAsynchronous().admin().scanTopFuture(5L).get().getKeys().size());
      assertEquals(1L, limiter.admin().resetListed().getReset());
      assertTrue(limiter.metricsText().contains("polylimit_build_info"));
    }
  }

  @Test
  void javaIsToldOfOutages() throws Exception {
    var events = new LinkedBlockingQueue<DegradedEvent>();
    try (Limiter limiter = Limiter.of(Map.of("api", "3/minute"), "redis://127.0.0.1:1", events::add)) {
      assertEquals("fallback", limiter.check("user:42").getSource());
      assertEquals("started", events.poll(20, TimeUnit.SECONDS).getKind());
    }
    new Limiter(new Settings(), event -> {}).close();
  }

  @Test
  void javaBuildsALimiterAndCallsItInLambdas() {
    try (Limiter limiter = Limiter.builder().policy("api", "3/minute").option("max_keys", "1000").onDegraded(event -> {}).build()) {
      assertEquals(List.of(2L, 1L), List.of("user:1", "user:1").stream().map(key -> limiter.check(key).getRemaining()).toList());
    }
  }

  @Test
  void javaLimitsTokensAndRequestsTogether() {
    Map<String, String> policies = Map.of("tokens", "10000/day fixed_window", "requests", "3/day fixed_window");
    try (Limiter limiter = Limiter.of(policies)) {
      Guard guard =
          limiter.guard(
              GuardOptions.builder()
                  .policies("tokens", "requests")
                  .costsPerRequest("tokens")
                  .cost("requests", 1)
                  .reservedPolicies("tokens")
                  .build());
      GuardAnswer admitted = guard.decide(facts(Map.of("tokens", 4000L)));
      assertNull(admitted.getProblem());
      GuardAnswer denied = guard.decide(facts(Map.of("tokens", 6001L)));
      assertEquals(List.of("tokens"), denied.getProblem().getViolated());
      assertEquals(List.of(6000L, 2L), left(limiter));
      admitted.getCheck().end(Map.of("tokens", 1234L));
      assertEquals(List.of(8766L, 2L), left(limiter));
      RateLimitOptions unknown = new RateLimitOptions(limiter).policy("tokens", "requests").cost("token", request -> 5L);
      var refused = assertThrows(PolylimitException.InvalidArgument.class, () -> new RateLimitFilter(unknown));
      assertTrue(refused.getMessage().endsWith("allowed are \"tokens\", \"requests\""), refused.getMessage());
    }
  }

  /** Java gives all arguments of the constructor. */
  private static GuardFacts facts(Map<String, Long> costs) {
    return new GuardFacts(
        "k".getBytes(), List.of(), "192.0.2.1", List.of(), null, null, null, null, null, null, costs);
  }

  private static List<Long> left(Limiter limiter) {
    return List.of(limiter.peek("k", "tokens").getRemaining(), limiter.peek("k", "requests").getRemaining());
  }
}
