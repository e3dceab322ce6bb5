import io.micrometer.core.instrument.MeterRegistry;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.Profile;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import polylimit.Limiter;
import polylimit.PolylimitException;

/** What the properties do in a real Spring Boot, with any version of it, in Spring MVC and in WebFlux. Prints a line in cargo's form at the end. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(StarterChecks.Handlers.class)
public class StarterChecks {
  @RestController
  static class Handlers {
    @GetMapping("/users/{id}")
    String user(@PathVariable("id") String id) {
      return id;
    }

    @GetMapping("/tenants/{tenant}/items")
    String items(@PathVariable("tenant") String tenant) {
      return tenant;
    }
  }

  @Bean
  @Profile("own")
  Limiter ownLimiter() throws PolylimitException {
    return Limiter.of(Map.of("api", "1/hour fixed_window"));
  }

  /** A service with these properties. */
  private record Service(ConfigurableApplicationContext context, HttpClient client) implements AutoCloseable {
    static Service of(String profile, String... properties) {
      ConfigurableApplicationContext context = new SpringApplicationBuilder(StarterChecks.class).profiles(profile)
          .properties("server.port=0", "server.address=127.0.0.1", "spring.main.banner-mode=off", "logging.level.root=off", "spring.jmx.enabled=false")
          .properties(properties).run();
      return new Service(context, HttpClient.newHttpClient());
    }

    HttpResponse<String> get(String path, String... fields) throws Exception {
      String port = context.getEnvironment().getRequiredProperty("local.server.port");
      HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path));
      if (fields.length > 0) request.headers(fields);
      return client.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    List<Integer> statuses(int count, String path) {
      return IntStream.range(0, count).mapToObj(each -> {
        try {
          return get(path).statusCode();
        } catch (Exception failure) {
          throw new IllegalStateException(failure);
        }
      }).toList();
    }

    /** Reactor Netty takes two seconds to end, and the process ends it as well. */
    @Override
    public void close() {
      if (context.containsBean("dispatcherServlet")) context.close();
    }
  }

  private interface Check {
    void run(Service service) throws Exception;
  }

  private int passed;
  private int failed;

  private void check(String name, Check check, String... properties) {
    checkWith(name, "none", check, properties);
  }

  private void checkWith(String name, String profile, Check check, String... properties) {
    try (Service service = Service.of(profile, properties)) {
      check.run(service);
      passed += 1;
    } catch (Throwable failure) {
      failed += 1;
      for (Throwable cause = failure; cause != null; cause = cause.getCause()) System.out.println("FAILED: " + name + ": " + cause.getMessage());
    }
  }

  /** The application does not start, and says why. */
  private void refused(String name, String reason, String... properties) {
    StringBuilder said = new StringBuilder();
    try {
      Service.of("none", properties).close();
      said.append("it has started");
    } catch (Throwable failure) {
      for (Throwable cause = failure; cause != null; cause = cause.getCause()) said.append(cause.getMessage()).append('\n');
    }
    boolean isRefused = said.toString().contains(reason);
    if (isRefused) passed += 1;
    else {
      failed += 1;
      System.out.println("FAILED: " + name + ": " + said);
    }
  }

  private static void same(Object expected, Object seen) {
    if (!expected.equals(seen)) throw new AssertionError("expected " + expected + ", but was " + seen);
  }

  private static String[] and(String[] properties, String... more) {
    String[] all = Arrays.copyOf(properties, properties.length + more.length);
    System.arraycopy(more, 0, all, properties.length, more.length);
    return all;
  }

  private static final String[] API = {"polylimit.policies.api=2/hour fixed_window", "polylimit.web.policy=api"};

  private void run(boolean isServlet) throws Exception {
    check("without properties nothing is limited, and there is no limiter", service -> {
      same(List.of(200, 200, 200), service.statuses(3, "/users/1"));
      same(0, service.context().getBeanNamesForType(Limiter.class).length);
    });
    check("the policies of properties limit all handlers", service -> {
      same(List.of(200, 200, 429), service.statuses(3, "/users/1"));
      HttpResponse<String> denied = service.get("/tenants/a/items");
      same(429, denied.statusCode());
      same("\"api\";q=2;w=3600", denied.headers().firstValue("ratelimit-policy").orElse(""));
    }, API);
    check("a limiter without a limit in front of handlers is a bean only", service -> {
      same(List.of(200, 200, 200), service.statuses(3, "/users/1"));
      same(true, service.context().getBean(Limiter.class).check("k", "api").getAllowed());
    }, API[0]);
    check("the limit can be turned off", service -> same(List.of(200, 200, 200), service.statuses(3, "/users/1")), and(API, "polylimit.web.enabled=false"));
    check("the key is made of parts of the request", service -> {
      for (String client : List.of("a", "b")) {
        same(200, service.get("/users/1", "x-client", client).statusCode());
        same(200, service.get("/users/1", "x-client", client).statusCode());
        same(429, service.get("/users/1", "x-client", client).statusCode());
      }
      same(400, service.get("/users/1").statusCode());
    }, and(API, "polylimit.web.key=header:x-client", "polylimit.web.missing-key=refuse"));
    check("trusted proxies name the client", service -> {
      for (String client : List.of("192.0.2.1", "192.0.2.2")) same(List.of(200, 200, 429), IntStream.range(0, 3).mapToObj(each -> {
        try {
          return service.get("/users/1", "x-forwarded-for", client).statusCode();
        } catch (Exception failure) {
          throw new IllegalStateException(failure);
        }
      }).toList());
    }, and(API, "polylimit.web.trusted-proxies=loopback", "polylimit.web.proxy-header=x-forwarded-for", "server.forward-headers-strategy=none"));
    check("the other properties reach the limit", service -> {
      same(List.of(200, 200, 200), service.statuses(3, "/users/1"));
      same("0", service.get("/users/1").headers().firstValue("x-ratelimit-remaining").orElse("none"));
    }, and(API, "polylimit.web.dry-run=true", "polylimit.web.headers=legacy epoch", "polylimit.web.methods=get", "polylimit.web.cors-origins=https://app.example"));
    checkWith("an application's own limiter decides", "own", service -> same(List.of(200, 429), service.statuses(2, "/users/1")), "polylimit.web.policy=api");
    Path document = Files.createTempFile("polylimit", ".toml");
    Files.writeString(document, "polylimit = 1\npolicies.items.quotas = \"1/hour fixed_window\"\n[[rules]]\nmatch = { path = \"/tenants/{tenant}/items\" }\n"
        + "apply = [{ policy = \"items\", key = \"{client}\" }]\n");
    for (String property : List.of("polylimit.document=file:" + document, "polylimit.options.configuration=file:" + document)) {
      check("the rules of a document limit what they name: " + property.substring(0, 20), service -> {
        same(List.of(200, 429), service.statuses(2, "/tenants/a/items"));
        same(List.of(200, 200), service.statuses(2, "/users/1"));
      }, property);
    }
    check("options have the dashes of Spring in their names", service -> same(200, service.get("/users/1").statusCode()), and(API,
        "polylimit.store=redis://127.0.0.1:1", "polylimit.options.fallback-share=0.5", "polylimit.options.doctor-after=0", "polylimit.outages.api=allow"));
    if (isServlet) {
      check("an interceptor knows the route", service -> {
        same(List.of(200, 200, 429), service.statuses(3, "/tenants/a/items"));
        same(List.of(200, 200, 429), service.statuses(3, "/tenants/b/items"));
        same(List.of(200, 200, 200), service.statuses(3, "/users/1"));
      }, and(API, "polylimit.web.at=interceptor", "polylimit.web.key=path:tenant", "polylimit.web.path-patterns=/tenants/**"));
      check("the filter has the patterns of the properties", service -> {
        same(List.of(200, 200, 200), service.statuses(3, "/users/1"));
        same(List.of(200, 200, 429), service.statuses(3, "/tenants/b/items"));
      }, and(API, "polylimit.web.url-patterns=/tenants/*"));
    }
    check("the endpoint shows the state", service -> {
      service.get("/users/1");
      HttpResponse<String> answer = service.get("/actuator/polylimit");
      for (String part : List.of("\"status\":\"UP\"", "\"api\":\"2/hour fixed_window\"", "\"applied\":2")) same(true, answer.body().contains(part) || fail(answer.body()));
    }, and(API, "management.endpoints.web.exposure.include=polylimit"));
    check("the endpoint shows a store that cannot be reached", service -> {
      String body = service.get("/actuator/polylimit").body();
      same(true, body.contains("\"status\":\"DOWN\"") && body.contains("127.0.0.1:1") || fail(body));
    }, and(API, "management.endpoints.web.exposure.include=polylimit", "polylimit.web.enabled=false", "polylimit.store=redis://127.0.0.1:1", "polylimit.options.doctor-after=0"));
    check("an endpoint that is not exposed does not exist", service -> same(404, service.get("/actuator/polylimit").statusCode()), API);
    check("the registry has the meters", service -> {
      service.get("/users/1");
      MeterRegistry registry = service.context().getBean(MeterRegistry.class);
      same(true, registry.getMeters().stream().anyMatch(meter -> meter.getId().getName().startsWith("polylimit")));
    }, API);
    check("the example of the page limits each client", service -> {
      HttpResponse<String> answer = service.get("/users/1", "x-api-key", "a");
      same("\"api:1\";q=100;w=60, \"api:2\";q=1000;w=3600", answer.headers().firstValue("ratelimit-policy").orElse("none"));
      same("a", service.get("/users/a", "x-api-key", "b").body());
    }, example());
    refused("a policy that is not known", "\"apu\" is not known", "polylimit.policies.api=2/hour", "polylimit.web.policy=apu");
    refused("quotas that cannot be read", "read \"forever\"", "polylimit.policies.api=2/forever");
    refused("a place that does not exist", "allowed are filter and interceptor", and(API, "polylimit.web.at=elsewhere"));
    refused("a store that does not answer in time", "127.0.0.1:1", and(API, "polylimit.store=redis://127.0.0.1:1", "polylimit.ready-timeout=100ms"));
    refused("an empty URL", "store", and(API, "polylimit.store="));
  }

  /** The properties of the page, with a store of this process. */
  private static String[] example() throws Exception {
    String block = Files.readString(Path.of("../README.md")).split("```properties\n")[1].split("```")[0];
    return block.replace("redis://localhost", "memory:").strip().split("\n");
  }

  private static boolean fail(String seen) {
    throw new AssertionError("it was " + seen);
  }

  public static void main(String[] arguments) throws Exception {
    boolean isServlet = arguments[0].equals("spring");
    StarterChecks checks = new StarterChecks();
    checks.run(isServlet);
    System.out.println("properties in Spring Boot " + SpringBootVersion.getVersion() + " with " + (isServlet ? "Spring MVC" : "WebFlux"));
    System.out.println("test result: " + (checks.failed == 0 ? "ok" : "FAILED") + ". " + checks.passed + " passed; " + checks.failed + " failed;");
    Runtime.getRuntime().halt(checks.failed == 0 ? 0 : 1);
  }
}
