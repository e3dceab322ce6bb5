import jakarta.servlet.Filter;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.Profile;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.PathMatchConfigurer;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;
import org.springframework.web.util.pattern.PathPatternParser;
import polylimit.Limiter;
import polylimit.PolylimitException;
import polylimit.http.KeyPart;
import polylimit.servlet.RateLimitFilter;
import polylimit.servlet.RateLimitOptions;
import polylimit.spring.RateLimitInterceptor;

/** Each site is an application of Spring Boot with a profile of its own. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import({Handlers.Plain.class, Handlers.Prefixed.class, Handlers.Separate.class})
class Main {
  private static final String QUOTAS = "3/hour fixed_window";
  private static final String ALL = "login,report,user";

  /** The document with rules by `path` or by `route`. */
  private static RateLimitOptions byDocument(String attribute) throws PolylimitException {
    StringBuilder text = new StringBuilder("polylimit = 1\n");
    String[][] rules = {{"login", "POST", "/login"}, {"report", "GET", "/report"}, {"user", "GET", "/v1/users/{id}"}};
    for (String[] rule : rules) text.append("policies.%s.quotas = \"%s\"\n".formatted(rule[0], QUOTAS));
    for (String[] rule : rules) {
      text.append("[[rules]]\nmatch = { method = \"%s\", %s = \"%s\" }\n".formatted(rule[1], attribute, rule[2]));
      text.append("apply = [{ policy = \"%s\", key = \"{header.x-client}\" }]\n".formatted(rule[0]));
    }
    return new RateLimitOptions(Limiter.builder().document(text.toString()).build());
  }

  private static RateLimitOptions options(String quotas) throws PolylimitException {
    return new RateLimitOptions(Limiter.of(Map.of())).policy(quotas).key(KeyPart.header("x-client"));
  }

  @Bean
  @Profile("global")
  Filter global() throws PolylimitException {
    return new RateLimitFilter(options(QUOTAS));
  }

  @Bean
  @Profile("methods")
  Filter methods() throws PolylimitException {
    return new RateLimitFilter(options(QUOTAS).methods("get", "post"));
  }

  /** Behind Spring's own filter that replaces the method, where that is turned on. */
  @Bean
  @Profile({"path_rules", "override", "path_rules_without_case", "path_rules_with_suffix"})
  Filter pathRules() throws PolylimitException {
    return new RateLimitFilter(byDocument("path"));
  }

  private interface Interceptors {
    void add(InterceptorRegistry registry) throws PolylimitException;
  }

  private static WebMvcConfigurer interceptors(Interceptors interceptors) {
    return new WebMvcConfigurer() {
      @Override
      public void addInterceptors(InterceptorRegistry registry) {
        try {
          interceptors.add(registry);
        } catch (PolylimitException mistake) {
          throw new IllegalStateException(mistake);
        }
      }
    };
  }

  @Bean
  @Profile("route_rules")
  WebMvcConfigurer routeRules() {
    return interceptors(registry -> registry.addInterceptor(new RateLimitInterceptor(byDocument("route"))));
  }

  @Bean
  @Profile("router")
  WebMvcConfigurer router() {
    return interceptors(registry -> registry.addInterceptor(new RateLimitInterceptor(options(QUOTAS))).addPathPatterns("/v1/**"));
  }

  /** Quotas without a name have a budget for each handler. */
  @Bean
  @Profile("handler")
  WebMvcConfigurer handler() {
    return interceptors(registry -> registry.addInterceptor(new RateLimitInterceptor(options(QUOTAS))));
  }

  @Bean
  @Profile("path_rules_without_case")
  WebMvcConfigurer withoutCase() {
    return new WebMvcConfigurer() {
      @Override
      public void configurePathMatch(PathMatchConfigurer configurer) {
        PathPatternParser parser = new PathPatternParser();
        parser.setCaseSensitive(false);
        configurer.setPatternParser(parser);
      }
    };
  }

  /** `/login.json` reaches `/login`, as far as Spring can be configured to. */
  @Bean
  @Profile("path_rules_with_suffix")
  static BeanPostProcessor withSuffix() {
    return new BeanPostProcessor() {
      @Override
      public Object postProcessBeforeInitialization(Object bean, String name) {
        if (bean instanceof RequestMappingHandlerMapping mapping) {
          mapping.setPatternParser(null);
          turnOn(mapping, "setUseSuffixPatternMatch");
          turnOn(mapping, "setUseTrailingSlashMatch");
        }
        return bean;
      }
    };
  }

  private static boolean canAcceptSuffix() {
    return List.of(RequestMappingHandlerMapping.class.getMethods()).stream().anyMatch(method -> method.getName().equals("setUseSuffixPatternMatch"));
  }

  private static void turnOn(Object bean, String setter) {
    try {
      Method method = bean.getClass().getMethod(setter, boolean.class);
      method.invoke(bean, true);
    } catch (ReflectiveOperationException failure) {
      throw new IllegalStateException(failure);
    }
  }

  @Configuration(proxyBeanMethods = false)
  @Profile("separate")
  static class Separate {
    private final Limiter limiter;

    Separate() throws PolylimitException {
      limiter = Limiter.of(Map.of());
    }

    private RateLimitOptions once() throws PolylimitException {
      return new RateLimitOptions(limiter).policy("1/hour fixed_window").key(KeyPart.header("x-client"));
    }

    @Bean
    WebMvcConfigurer routes() {
      return interceptors(registry -> registry.addInterceptor(new RateLimitInterceptor(once())).addPathPatterns("/a/**", "/b/**"));
    }

    private FilterRegistrationBean<Filter> filter(String pattern) throws PolylimitException {
      FilterRegistrationBean<Filter> registration = new FilterRegistrationBean<>(new RateLimitFilter(once()));
      registration.addUrlPatterns(pattern);
      registration.setName("filter " + pattern);
      return registration;
    }

    @Bean
    FilterRegistrationBean<Filter> filterOfC() throws PolylimitException {
      return filter("/c/*");
    }

    @Bean
    FilterRegistrationBean<Filter> filterOfD() throws PolylimitException {
      return filter("/d/*");
    }
  }

  private static void open(String site, String listed, String... more) {
    SpringApplication application = new SpringApplicationBuilder(Main.class)
        .profiles(site)
        .properties("server.port=0", "server.address=127.0.0.1", "spring.main.banner-mode=off", "spring.main.log-startup-info=false",
            "logging.level.root=error", "spring.jmx.enabled=false")
        .properties(more)
        .build();
    ConfigurableApplicationContext context = application.run();
    String port = context.getEnvironment().getRequiredProperty("local.server.port");
    System.out.println("listening " + site + " " + port + " " + listed);
  }

  public static void main(String[] arguments) throws Exception {
    for (String site : List.of("global", "methods", "path_rules", "route_rules", "handler")) open(site, ALL);
    open("router", "user");
    open("path_rules_without_case", ALL);
    if (canAcceptSuffix()) open("path_rules_with_suffix", ALL);
    open("override", ALL, "spring.mvc.hiddenmethod.filter.enabled=true");
    // The limit of the properties: a filter, and an interceptor.
    open("properties", ALL, "polylimit.web.policy=" + QUOTAS, "polylimit.web.key=header:x-client");
    open("properties_after_routing", ALL, "polylimit.web.policy=" + QUOTAS, "polylimit.web.key=header:x-client", "polylimit.web.at=interceptor");
    open("separate", "GET:/a/1,GET:/b/1,POST:/a/1,GET:/c/1,GET:/d/1");
    System.out.println("version spring-boot " + SpringBootVersion.getVersion());
    System.out.println("note route in the interceptor");
    System.out.println("ready");
    while (System.in.read() >= 0) continue;
    Runtime.getRuntime().halt(0);
  }
}
