import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import polylimit.Decision;
import polylimit.Limiter;
import polylimit.PolylimitException;
import polylimit.Request;
import polylimit.Requests;

/**
 * Callers on the JVM: Caller URL CALLERS ATTEMPTS. For each line of the input, a key and quotas with a tab between them, all
 * callers ask at the same time, each in a thread, every other one through Kotlin's coroutines; the answer is how many were
 * admitted.
 */
public class Caller {
  public static void main(String[] arguments) throws Exception {
    int callers = Integer.parseInt(arguments[1]);
    int attempts = Integer.parseInt(arguments[2]);
    ExecutorService threads = Executors.newFixedThreadPool(callers);
    try (Limiter limiter = Limiter.of(Map.of(), arguments[0])) {
      System.out.println("ready");
      var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line; (line = lines.readLine()) != null; ) {
        String[] keyAndQuotas = line.split("\t");
        Request request = Requests.of(keyAndQuotas[0], keyAndQuotas[1]);
        List<Future<Integer>> running = new ArrayList<>();
        for (int caller = 0; caller < callers; caller++) {
          boolean waits = caller % 2 == 0;
          running.add(threads.submit(() -> call(limiter, request, attempts, waits)));
        }
        int admitted = 0;
        for (Future<Integer> caller : running) {
          admitted += caller.get();
        }
        System.out.println(admitted);
      }
    } finally {
      threads.shutdown();
    }
  }

  private static int call(Limiter limiter, Request request, int attempts, boolean waits)
      throws PolylimitException, ExecutionException, InterruptedException {
    int admitted = 0;
    for (int attempt = 0; attempt < attempts; attempt++) {
      Decision decision = waits ? limiter.check(request) : limiter.getAsynchronous().checkFuture(request).get();
      // What the store did not decide would say nothing about a shared budget.
      if (decision.getDegraded() != null) {
        throw new IllegalStateException("a decision is degraded: " + decision.getDegraded());
      }
      admitted += decision.getAllowed() ? 1 : 0;
    }
    return admitted;
  }
}
