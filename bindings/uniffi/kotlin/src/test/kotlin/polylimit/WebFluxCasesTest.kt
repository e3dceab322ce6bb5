package polylimit

import org.springframework.http.HttpStatusCode
import org.springframework.http.server.reactive.ReactorHttpHandlerAdapter
import org.springframework.http.server.reactive.ServerHttpResponse
import org.springframework.web.server.ServerWebExchange
import org.springframework.web.server.adapter.WebHttpHandlerBuilder
import polylimit.webflux.RateLimitOptions
import polylimit.webflux.RateLimitWebFilter
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono
import reactor.netty.http.server.HttpServer
import java.time.Duration

/** The cases of the guard through the filter of WebFlux, in Reactor Netty. */
class WebFluxCasesTest : GuardCases<ServerWebExchange, ServerHttpResponse, RateLimitOptions, RateLimitWebFilter>() {
    override fun options(limiter: Limiter) = RateLimitOptions(limiter)

    override fun limit(options: RateLimitOptions) = RateLimitWebFilter(options)

    override fun field(
        request: ServerWebExchange,
        name: String,
    ): String? = request.request.headers.getFirst(name)

    override fun statusOf(response: ServerHttpResponse): Int = response.statusCode?.value() ?: 200

    override fun fieldOf(
        response: ServerHttpResponse,
        name: String,
    ): String? = response.headers.getFirst(name)

    override fun answerDenied(
        options: RateLimitOptions,
        status: Int,
        body: String,
    ) {
        options.onDenied { _, exchange ->
            exchange.response.setStatusCode(HttpStatusCode.valueOf(status))
            write(exchange, Flux.just(body))
        }
    }

    override fun serve(
        limits: List<RateLimitWebFilter>,
        script: Script,
    ): Pair<Int, AutoCloseable> {
        val handler = WebHttpHandlerBuilder.webHandler { exchange -> answer(exchange, script) }.filters { it += limits }.build()
        val server = HttpServer.create().host("127.0.0.1").port(0).handle(ReactorHttpHandlerAdapter(handler)).bindNow()
        return server.port() to AutoCloseable { server.disposeNow() }
    }

    private fun answer(
        exchange: ServerWebExchange,
        script: Script,
    ): Mono<Void> {
        script.handle()
        exchange.response.setStatusCode(HttpStatusCode.valueOf(script.status))
        script.fields(exchange.response.headers::set)
        val open = script.open ?: return write(exchange, Flux.fromIterable(script.pieces))
        // More parts, until this is all or the client has gone.
        val parts = Flux.interval(Duration.ofMillis(10)).takeWhile { !open.get() }.map { "part" }.startWith("part").onBackpressureDrop()
        return exchange.response.writeAndFlushWith(parts.map { Mono.just(buffer(exchange, it)) })
    }

    private fun write(
        exchange: ServerWebExchange,
        pieces: Flux<String>,
    ): Mono<Void> = exchange.response.writeWith(pieces.map { buffer(exchange, it) })

    private fun buffer(
        exchange: ServerWebExchange,
        text: String,
    ) = exchange.response.bufferFactory().wrap(text.encodeToByteArray())
}
