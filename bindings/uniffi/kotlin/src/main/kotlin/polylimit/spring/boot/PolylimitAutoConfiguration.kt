package polylimit.spring.boot

import io.micrometer.core.instrument.binder.MeterBinder
import org.springframework.boot.actuate.autoconfigure.endpoint.condition.ConditionalOnAvailableEndpoint
import org.springframework.boot.autoconfigure.AutoConfiguration
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication
import org.springframework.boot.context.properties.EnableConfigurationProperties
import org.springframework.boot.web.servlet.FilterRegistrationBean
import org.springframework.context.annotation.Bean
import org.springframework.context.annotation.Conditional
import org.springframework.core.Ordered
import org.springframework.web.server.ServerWebExchange
import org.springframework.web.server.WebFilter
import org.springframework.web.server.WebFilterChain
import org.springframework.web.servlet.config.annotation.InterceptorRegistry
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer
import polylimit.Limiter
import polylimit.micrometer.PolylimitMetrics
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import polylimit.spring.RateLimitInterceptor
import polylimit.webflux.RateLimitWebFilter
import reactor.core.publisher.Mono
import polylimit.webflux.RateLimitOptions as WebFluxOptions

/** The limiter of an application of Spring Boot, from its properties `polylimit.*`, unless the application has a limiter of its own. */
@AutoConfiguration
@Conditional(HasLimits::class)
@EnableConfigurationProperties(PolylimitProperties::class)
public class PolylimitAutoConfiguration {
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    public fun polylimitLimiter(properties: PolylimitProperties): Limiter =
        Limiter(properties.settings()).also { limiter ->
            val timeout = properties.readyTimeout ?: return@also
            runCatching { limiter.ready(timeout) }.onFailure { limiter.close() }.getOrThrow()
        }
}

/** The limit in front of an application of Spring MVC: a filter, or an interceptor. */
@AutoConfiguration(after = [PolylimitAutoConfiguration::class])
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
@ConditionalOnClass(WebMvcConfigurer::class, FilterRegistrationBean::class)
@ConditionalOnBean(Limiter::class, PolylimitProperties::class)
@Conditional(HasWebLimit::class)
public class PolylimitServletAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean(RateLimitFilter::class, name = ["polylimitFilterRegistration"])
    @ConditionalOnProperty("polylimit.web.at", havingValue = PolylimitProperties.FILTER, matchIfMissing = true)
    public fun polylimitFilterRegistration(
        limiter: Limiter,
        properties: PolylimitProperties,
    ): FilterRegistrationBean<RateLimitFilter> {
        val web = properties.web
        return FilterRegistrationBean(RateLimitFilter(web.applyTo(RateLimitOptions(limiter)))).apply {
            setName("polylimit")
            urlPatterns = web.urlPatterns
            order = web.order
        }
    }

    @Bean
    @ConditionalOnProperty("polylimit.web.at", havingValue = PolylimitProperties.INTERCEPTOR)
    public fun polylimitInterceptor(
        limiter: Limiter,
        properties: PolylimitProperties,
    ): WebMvcConfigurer {
        val interceptor = RateLimitInterceptor(properties.web.applyTo(RateLimitOptions(limiter)))
        return object : WebMvcConfigurer {
            override fun addInterceptors(registry: InterceptorRegistry) {
                registry.addInterceptor(interceptor).addPathPatterns(properties.web.pathPatterns)
            }
        }
    }
}

/** The limit in front of an application of Spring WebFlux. */
@AutoConfiguration(after = [PolylimitAutoConfiguration::class])
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
@ConditionalOnClass(WebFilter::class, Mono::class)
@ConditionalOnBean(Limiter::class, PolylimitProperties::class)
@Conditional(HasWebLimit::class)
public class PolylimitWebFluxAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean(RateLimitWebFilter::class)
    public fun polylimitWebFilter(
        limiter: Limiter,
        properties: PolylimitProperties,
    ): WebFilter = OrderedFilter(RateLimitWebFilter(properties.web.applyTo(WebFluxOptions(limiter))), properties.web.order)

    private class OrderedFilter(
        private val filter: WebFilter,
        private val order: Int,
    ) : WebFilter,
        Ordered {
        override fun getOrder(): Int = order

        override fun filter(
            exchange: ServerWebExchange,
            chain: WebFilterChain,
        ): Mono<Void> = filter.filter(exchange, chain)
    }
}

/** The meters of the limiter, where the application has Micrometer. */
@AutoConfiguration(after = [PolylimitAutoConfiguration::class])
@ConditionalOnClass(MeterBinder::class)
@ConditionalOnBean(Limiter::class, PolylimitProperties::class)
public class PolylimitMetricsAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    public fun polylimitMetrics(limiter: Limiter): PolylimitMetrics = PolylimitMetrics(limiter)
}

/** The endpoint `polylimit` of the actuator, where the application exposes it. */
@AutoConfiguration(after = [PolylimitAutoConfiguration::class])
@ConditionalOnClass(ConditionalOnAvailableEndpoint::class)
@ConditionalOnBean(Limiter::class, PolylimitProperties::class)
public class PolylimitEndpointAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    @ConditionalOnAvailableEndpoint
    public fun polylimitEndpoint(limiter: Limiter): PolylimitEndpoint = PolylimitEndpoint(limiter)
}
