import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.context.annotation.Bean;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.reactive.function.server.RouterFunction;
import org.springframework.web.reactive.function.server.RouterFunctions;
import org.springframework.web.reactive.function.server.ServerResponse;
import reactor.core.publisher.Mono;

/** Handlers that count their executions for each client: two of a controller, and one of a function that routes. */
class Handlers {
  private static final Map<String, Integer> RUNS = new ConcurrentHashMap<>();

  private static String runs(String site, String name, String client) {
    return name + "=" + RUNS.merge(site + " " + name + " " + client, 1, Integer::sum);
  }

  @RestController
  static class Plain {
    private final String site = String.valueOf(System.identityHashCode(this));

    @PostMapping("/login")
    Mono<String> login(@RequestHeader(name = "x-client", required = false) String client, ServerHttpResponse response) {
      if (client != null) response.getHeaders().set("x-runs", runs(site, "login", client));
      return Mono.just("login");
    }

    @GetMapping("/report")
    String report(@RequestHeader(name = "x-client", required = false) String client, ServerHttpResponse response) {
      if (client != null) response.getHeaders().set("x-runs", runs(site, "report", client));
      return "report";
    }
  }

  static class Routed {
    private final String site = String.valueOf(System.identityHashCode(this));

    @Bean
    RouterFunction<ServerResponse> users() {
      return RouterFunctions.route().path("/v1", routes -> routes.GET("/users/{id}", request -> {
        String client = request.headers().firstHeader("x-client");
        ServerResponse.BodyBuilder response = ServerResponse.ok();
        if (client != null) response.header("x-runs", runs(site, "user", client));
        return response.bodyValue("user");
      })).build();
    }
  }

  /** For the site of limits that share nothing. */
  @RestController
  static class Separate {
    @GetMapping({"/a/{id}", "/b/{id}"})
    String one(@PathVariable String id) {
      return id;
    }
  }
}
