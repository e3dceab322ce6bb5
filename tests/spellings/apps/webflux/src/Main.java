import java.util.List;
import java.util.Map;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.Profile;
import org.springframework.web.reactive.config.PathMatchConfigurer;
import org.springframework.web.reactive.config.WebFluxConfigurer;
import org.springframework.web.server.WebFilter;
import polylimit.Limiter;
import polylimit.PolylimitException;
import polylimit.http.KeyPart;
import polylimit.webflux.RateLimitOptions;
import polylimit.webflux.RateLimitWebFilter;

/** Each site is an application of Spring Boot with a profile of its own. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import({Handlers.Plain.class, Handlers.Routed.class, Handlers.Separate.class})
class Main {
  private static final String QUOTAS = "3/hour fixed_window";
  private static final String ALL = "login,report,user";

  /** The document with rules by `path`. */
  private static RateLimitOptions byDocument() throws PolylimitException {
    StringBuilder text = new StringBuilder("polylimit = 1\n");
    String[][] rules = {{"login", "POST", "/login"}, {"report", "GET", "/report"}, {"user", "GET", "/v1/users/{id}"}};
    for (String[] rule : rules) text.append("policies.%s.quotas = \"%s\"\n".formatted(rule[0], QUOTAS));
    for (String[] rule : rules) {
      text.append("[[rules]]\nmatch = { method = \"%s\", path = \"%s\" }\n".formatted(rule[1], rule[2]));
      text.append("apply = [{ policy = \"%s\", key = \"{header.x-client}\" }]\n".formatted(rule[0]));
    }
    return new RateLimitOptions(Limiter.builder().document(text.toString()).build());
  }

  private static RateLimitOptions options() throws PolylimitException {
    return new RateLimitOptions(Limiter.of(Map.of())).policy(QUOTAS).key(KeyPart.header("x-client"));
  }

  @Bean
  @Profile("global")
  WebFilter global() throws PolylimitException {
    return new RateLimitWebFilter(options());
  }

  @Bean
  @Profile("methods")
  WebFilter methods() throws PolylimitException {
    return new RateLimitWebFilter(options().methods("get", "post"));
  }

  @Bean
  @Profile({"path_rules", "path_rules_without_case", "override"})
  WebFilter pathRules() throws PolylimitException {
    return new RateLimitWebFilter(byDocument());
  }

  @Bean
  @Profile("path_rules_without_case")
  WebFluxConfigurer withoutCase() {
    return new WebFluxConfigurer() {
      @Override
      public void configurePathMatching(PathMatchConfigurer configurer) {
        configurer.setUseCaseSensitiveMatch(false);
      }
    };
  }

  /** Limits with scopes of their own, which skip what the other one counts. */
  @Configuration(proxyBeanMethods = false)
  @Profile("separate")
  static class Separate {
    private final Limiter limiter;

    Separate() throws PolylimitException {
      limiter = Limiter.of(Map.of());
    }

    private WebFilter once(String prefix) throws PolylimitException {
      return new RateLimitWebFilter(new RateLimitOptions(limiter).policy("1/hour fixed_window").key(KeyPart.header("x-client")).scope(prefix)
          .skip(exchange -> !exchange.getRequest().getPath().value().startsWith(prefix)));
    }

    @Bean
    WebFilter filterOfA() throws PolylimitException {
      return once("/a/");
    }

    @Bean
    WebFilter filterOfB() throws PolylimitException {
      return once("/b/");
    }
  }

  private static void open(String site, String listed, String... more) {
    ConfigurableApplicationContext context = new SpringApplicationBuilder(Main.class).profiles(site)
        .properties("server.port=0", "server.address=127.0.0.1", "spring.main.banner-mode=off", "spring.main.log-startup-info=false",
            "logging.level.root=error", "spring.jmx.enabled=false")
        .properties(more)
        .run();
    System.out.println("listening " + site + " " + context.getEnvironment().getRequiredProperty("local.server.port") + " " + listed);
  }

  public static void main(String[] arguments) throws Exception {
    for (String site : List.of("global", "methods", "path_rules", "path_rules_without_case")) open(site, ALL);
    open("override", ALL, "spring.webflux.hiddenmethod.filter.enabled=true");
    // The limit of the properties.
    open("properties", ALL, "polylimit.web.policy=" + QUOTAS, "polylimit.web.key=header:x-client");
    open("separate", "GET:/a/1,GET:/b/1");
    System.out.println("version webflux " + SpringBootVersion.getVersion());
    System.out.println("note framework spring-boot with WebFlux");
    System.out.println("note route no");
    System.out.println("ready");
    while (System.in.read() >= 0) continue;
    Runtime.getRuntime().halt(0);
  }
}
