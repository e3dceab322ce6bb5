package polylimit.webflux

import org.springframework.http.server.reactive.ServerHttpResponse
import org.springframework.web.server.ServerWebExchange
import polylimit.Limiter
import polylimit.http.Denial
import polylimit.http.LimitOptions
import reactor.core.publisher.Mono
import java.util.function.BiFunction

/**
 * The options of [RateLimitWebFilter]. A `onDenied` of three arguments sets the status and the fields of a response without a body; the one
 * of two arguments makes the whole response.
 */
public class RateLimitOptions(
    limiter: Limiter,
) : LimitOptions<ServerWebExchange, ServerHttpResponse, RateLimitOptions>(limiter) {
    internal var denied: BiFunction<Denial, ServerWebExchange, Mono<Void>>? = null

    /** Answers a request that does not proceed (429, 503 or 400) in place of the problem document; the response has its status already. */
    public fun onDenied(onDenied: BiFunction<Denial, ServerWebExchange, Mono<Void>>): RateLimitOptions = apply { denied = onDenied }
}
