package readme;

import org.springframework.context.annotation.Bean;
import org.springframework.web.server.WebFilter;
import polylimit.Limiter;
import polylimit.http.KeyPart;
import polylimit.webflux.RateLimitOptions;
import polylimit.webflux.RateLimitWebFilter;

/** The example of the README for Spring WebFlux; {@link ReadmeTest} compares and runs it. */
final class JavaWebFlux {
  @Bean
  WebFilter limits(Limiter limiter) {
    return new RateLimitWebFilter(new RateLimitOptions(limiter).policy("api").key(KeyPart.header("x-api-key")));
  }
}
