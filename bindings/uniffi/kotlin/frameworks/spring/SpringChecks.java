import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.IntStream;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.Profile;
import org.springframework.web.bind.annotation.CrossOrigin;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import polylimit.Limiter;
import polylimit.PolylimitException;
import polylimit.http.KeyPart;
import polylimit.servlet.RateLimitFilter;
import polylimit.servlet.RateLimitOptions;
import polylimit.spring.RateLimitInterceptor;

/** What the filter and the interceptor do in a real Spring Boot, with any version of it. Prints a line in cargo's form at the end. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(SpringChecks.Handlers.class)
public class SpringChecks {
  @RestController
  static class Handlers {
    @GetMapping("/users/{id}")
    String user(@PathVariable String id) {
      return id;
    }

    @GetMapping("/tenants/{tenant}/items")
    String items(@PathVariable String tenant) {
      return tenant;
    }

    @GetMapping("/later")
    Callable<String> later() {
      return () -> "later";
    }

    @GetMapping("/fails")
    String fails() {
      throw new IllegalStateException("broken");
    }

    @GetMapping("/forwards")
    void forwards(HttpServletRequest request, HttpServletResponse response) throws Exception {
      request.getRequestDispatcher("/users/1").forward(request, response);
    }

    @GetMapping("/status/{status}")
    void status(@PathVariable int status, HttpServletResponse response) throws IOException {
      response.setStatus(status);
    }

    @CrossOrigin("https://app.example")
    @GetMapping("/shared")
    String shared() {
      return "shared";
    }
  }

  private static Limiter limiter() throws PolylimitException {
    return Limiter.of(Map.of());
  }

  private static RateLimitOptions options(String quotas) throws PolylimitException {
    return new RateLimitOptions(limiter()).policy(quotas);
  }

  private static WebMvcConfigurer intercepted(RateLimitOptions... all) {
    return new WebMvcConfigurer() {
      @Override
      public void addInterceptors(InterceptorRegistry registry) {
        try {
          for (RateLimitOptions options : all) registry.addInterceptor(new RateLimitInterceptor(options));
        } catch (PolylimitException mistake) {
          throw new IllegalStateException(mistake);
        }
      }
    };
  }

  @Bean
  @Profile("routes")
  WebMvcConfigurer routes() throws PolylimitException {
    return intercepted(options("2/hour fixed_window"));
  }

  @Bean
  @Profile("parameters")
  WebMvcConfigurer parameters() throws PolylimitException {
    return intercepted(options("1/hour fixed_window").key(KeyPart.path("tenant")).missingKey("share"));
  }

  @Bean
  @Profile("counted")
  WebMvcConfigurer counted() throws PolylimitException {
    return intercepted(options("2/hour fixed_window").count((request, response) -> response.getStatus() < 400));
  }

  @Bean
  @Profile("holds")
  WebMvcConfigurer holds() throws PolylimitException {
    return intercepted(options("1 concurrent"));
  }

  @Bean
  @Profile("nested")
  WebMvcConfigurer nested() throws PolylimitException {
    Limiter limiter = Limiter.of(Map.of("wide", "3/hour fixed_window", "narrow", "1/hour fixed_window"));
    return intercepted(new RateLimitOptions(limiter).policy("wide"), new RateLimitOptions(limiter).policy("narrow").status(420));
  }

  @Bean
  @Profile("filter")
  Filter filter() throws PolylimitException {
    return new RateLimitFilter(options("2/hour fixed_window").corsOrigins("https://app.example"));
  }

  /** Statuses and fields of responses. */
  private record Service(ConfigurableApplicationContext context, HttpClient client) implements AutoCloseable {
    static Service of(String profile, String... properties) {
      ConfigurableApplicationContext context = new SpringApplicationBuilder(SpringChecks.class).profiles(profile)
          .properties("server.port=0", "server.address=127.0.0.1", "spring.main.banner-mode=off", "logging.level.root=off", "spring.jmx.enabled=false")
          .properties(properties).run();
      return new Service(context, HttpClient.newHttpClient());
    }

    HttpResponse<String> send(String method, String path, String... fields) throws Exception {
      String port = context.getEnvironment().getRequiredProperty("local.server.port");
      HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).method(method, HttpRequest.BodyPublishers.noBody());
      if (fields.length > 0) request.headers(fields);
      return client.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    List<Integer> statuses(int count, String path) {
      return IntStream.range(0, count).mapToObj(each -> {
        try {
          return send("GET", path).statusCode();
        } catch (Exception failure) {
          throw new IllegalStateException(failure);
        }
      }).toList();
    }

    @Override
    public void close() {
      context.close();
    }
  }

  private interface Check {
    void run(Service service) throws Exception;
  }

  private int passed;
  private int failed;

  private void check(String name, String profile, Check check, String... properties) {
    try (Service service = Service.of(profile, properties)) {
      check.run(service);
      passed += 1;
    } catch (Throwable failure) {
      failed += 1;
      System.out.println("FAILED: " + name + ": " + failure);
    }
  }

  private static void same(Object expected, Object seen) {
    if (!expected.equals(seen)) throw new AssertionError("expected " + expected + ", but was " + seen);
  }

  private void run() {
    check("each route has a budget of its own, which HEAD and GET share", "routes", service -> {
      same(200, service.send("HEAD", "/users/7").statusCode());
      same(List.of(200, 429), service.statuses(2, "/users/8"));
      same(429, service.send("HEAD", "/users/9").statusCode());
      same(List.of(200, 200, 429), service.statuses(3, "/tenants/a/items"));
    });
    check("routes have the prefixes of context and servlet", "routes", service -> {
      same(List.of(200, 200, 429), service.statuses(3, "/shop/api/users/7"));
      same(404, service.send("GET", "/users/7").statusCode());
    }, "server.servlet.context-path=/shop", "spring.mvc.servlet.path=/api");
    check("path parameters are parts of the key", "parameters", service -> {
      same(List.of(200, 429), service.statuses(2, "/tenants/a/items"));
      same(List.of(200, 429), service.statuses(2, "/tenants/b/items"));
    });
    check("a request that continues on another thread counts once", "routes", service -> same(List.of(200, 200, 429), service.statuses(3, "/later")));
    check("a handler that throws counts once, and not for its error page", "routes", service -> {
      same(List.of(500, 500, 429), service.statuses(3, "/fails"));
      same(List.of(200, 200, 429), service.statuses(3, "/users/1"));
    });
    check("a forwarded request counts for both of its handlers", "routes", service -> {
      same(List.of(200, 200), service.statuses(2, "/forwards"));
      same(429, service.send("GET", "/users/1").statusCode());
    });
    check("what does not count is given back", "counted", service -> {
      same(List.of(404, 404, 404), service.statuses(3, "/status/404"));
      same(List.of(200, 200, 429), service.statuses(3, "/status/200"));
      same(List.of(500, 500, 500), service.statuses(3, "/fails"));
    });
    check("places are free again when the response is done", "holds", service -> {
      same(List.of(200, 200, 200), service.statuses(3, "/users/1"));
      same(List.of(200, 200, 200), service.statuses(3, "/later"));
      same(List.of(500, 500), service.statuses(2, "/fails"));
      same(200, service.send("GET", "/users/1").statusCode());
    });
    check("a denial gives back what interceptors before have spent", "nested", service -> {
      same(List.of(200, 420, 420, 420, 420), service.statuses(5, "/users/1"));
      HttpResponse<String> denied = service.send("GET", "/users/1");
      same("\"wide\";r=2", denied.headers().firstValue("ratelimit").orElse("").split(";t")[0]);
    });
    check("preflights that Spring answers are free", "routes", service -> {
      String[] fields = {"Access-Control-Request-Method", "GET"};
      for (int each = 0; each < 4; each++) same(200, service.send("OPTIONS", "/shared", with(fields)).statusCode());
      same(List.of(200, 200, 429), service.statuses(3, "/shared"));
      same("https://app.example", service.send("GET", "/shared", with()).headers().firstValue("access-control-allow-origin").orElse("none"));
    });
    check("a filter in front of Spring's handling of CORS lets preflights pass, and pages read its denials", "filter", service -> {
      String[] fields = {"Access-Control-Request-Method", "GET"};
      for (int each = 0; each < 4; each++) {
        HttpResponse<String> answer = service.send("OPTIONS", "/shared", with(fields));
        same(List.of("https://app.example"), answer.headers().allValues("access-control-allow-origin"));
      }
      same(List.of(200, 200, 429), service.statuses(3, "/shared"));
      same(List.of("https://app.example"), service.send("GET", "/shared", with()).headers().allValues("access-control-allow-origin"));
    });
  }

  /** Fields of a request of a page. */
  private static String[] with(String... more) {
    String[] fields = new String[more.length + 2];
    fields[0] = "Origin";
    fields[1] = "https://app.example";
    System.arraycopy(more, 0, fields, 2, more.length);
    return fields;
  }

  public static void main(String[] arguments) {
    // The client of the JDK keeps this field for itself, unless it is allowed before it is loaded.
    System.setProperty("jdk.httpclient.allowRestrictedHeaders", "access-control-request-method,origin");
    SpringChecks checks = new SpringChecks();
    checks.run();
    System.out.println("Spring Boot " + SpringBootVersion.getVersion() + ", JDK " + Runtime.version().feature());
    System.out.println("test result: " + (checks.failed == 0 ? "ok" : "FAILED") + ". " + checks.passed + " passed; " + checks.failed + " failed;");
    Runtime.getRuntime().halt(checks.failed == 0 ? 0 : 1);
  }
}
