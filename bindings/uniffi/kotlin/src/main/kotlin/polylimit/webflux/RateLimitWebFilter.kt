package polylimit.webflux

import org.springframework.core.SpringVersion
import org.springframework.http.HttpStatusCode
import org.springframework.http.server.reactive.ServerHttpResponse
import org.springframework.web.server.ServerWebExchange
import org.springframework.web.server.WebFilter
import org.springframework.web.server.WebFilterChain
import polylimit.GuardAnswer
import polylimit.GuardCheck
import polylimit.PolylimitException
import polylimit.http.Denial
import polylimit.http.RateLimit
import polylimit.http.RequestLimit
import polylimit.http.WrittenFields
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono
import reactor.core.publisher.SignalType
import java.util.concurrent.atomic.AtomicInteger

/**
 * Limits requests in Spring WebFlux, and never blocks a thread: a request waits for the store without one, and goes on at once where the
 * limiter need not ask it. In Spring Boot, return it from a `@Bean` method.
 *
 * It does what [polylimit.servlet.RateLimitFilter] does; the decisions are the attribute [ATTRIBUTE] of the exchange. A policy with a quota
 * of concurrency is reserved until the response is written, or its client has gone.
 */
public class RateLimitWebFilter
    @Throws(PolylimitException::class)
    constructor(
        private val options: RateLimitOptions,
    ) : WebFilter {
        private val limit = RequestLimit(options, ExchangeReader)

        init {
            val version = SpringVersion.getVersion()
            val major = version?.substringBefore('.')?.toIntOrNull()
            if (major != null && major < OLDEST_SPRING) {
                throw PolylimitException.InvalidArgument("this is Spring $version: supported are Spring 6.0 and newer, as in Spring Boot 3.0")
            }
        }

        override fun filter(
            exchange: ServerWebExchange,
            chain: WebFilterChain,
        ): Mono<Void> =
            ExchangeReader
                .prepare(exchange)
                .then(Mono.defer { Mono.fromFuture(limit.decideFuture(exchange, exchange.getAttribute<GuardCheck>(CHECK))) })
                .map { Decided(it) }
                .defaultIfEmpty(NOT_LIMITED)
                .flatMap { decided -> decided.answer?.let { answered(it, exchange, chain) } ?: chain.filter(exchange) }

        private class Decided(
            val answer: GuardAnswer?,
        )

        private fun answered(
            answer: GuardAnswer,
            exchange: ServerWebExchange,
            chain: WebFilterChain,
        ): Mono<Void> {
            val rateLimit = RateLimit(answer.check)
            exchange.attributes[ATTRIBUTE] = rateLimit
            write(answer.fields, exchange)
            val problem = answer.problem ?: return proceed(answer.check, exchange, chain)
            return deny(Denial(rateLimit, problem), exchange).doFinally { answer.check.close() }
        }

        private fun proceed(
            check: GuardCheck,
            exchange: ServerWebExchange,
            chain: WebFilterChain,
        ): Mono<Void> {
            val outer = exchange.attributes.put(CHECK, check)
            val response = exchange.response
            val reading = if (limit.readsResponse(check)) ReadingResponse(response, check) else null
            val inner = if (reading == null) exchange else exchange.mutate().response(reading).build()
            // The handlers may be done before the head of the response is sent, such as those that fail.
            val parts = AtomicInteger()
            var hasFailed = false
            val end = {
                check.use {
                    reading?.begin()
                    if (!hasFailed) limit.end(check, exchange, response)
                }
            }
            beforeCommit(exchange) {
                val finished = if (limit.changes(check)) Mono.fromFuture(limit.finishFuture(check, exchange, response)) else Mono.empty()
                finished.doOnNext { write(it, exchange) }.doFinally { if (parts.incrementAndGet() == 2) end() }.then()
            }
            return chain.filter(inner).doOnError { hasFailed = true }.doFinally { signal ->
                // Limits after this one are not nested in it.
                if (outer == null) exchange.attributes.remove(CHECK) else exchange.attributes[CHECK] = outer
                if (parts.incrementAndGet() == 2 || signal == SignalType.CANCEL) end()
            }
        }

        private fun deny(
            denial: Denial,
            exchange: ServerWebExchange,
        ): Mono<Void> {
            val (response, problem) = exchange.response to denial.problem
            response.setStatusCode(HttpStatusCode.valueOf(problem.status))
            if (response.headers.getFirst(ALLOWED_ORIGIN) == null) {
                // Of `vary` and the names that pages may read there may be more.
                for ((name, value) in limit.corsFields(exchange)) response.headers.add(name, value)
            }
            options.denied?.let { return it.apply(denial, exchange) }
            limit.onDenied?.let {
                it.answer(denial, exchange, response)
                return response.setComplete()
            }
            for ((name, value) in problem.fields) response.headers.add(name, value)
            return response.writeWith(Mono.fromSupplier { response.bufferFactory().wrap(problem.body.encodeToByteArray()) })
        }

        private fun write(
            fields: Map<String, String>,
            exchange: ServerWebExchange,
        ) {
            val written = exchange.attributes.getOrPut(FIELDS) { WrittenFields() } as WrittenFields
            val headers = exchange.response.headers
            written.replace(fields, headers::getFirst) { name, value -> if (value == null) headers.without(name) else headers.set(name, value) }
        }

        /** Runs steps when the head of the response is about to be sent, those of inner limits first. */
        private fun beforeCommit(
            exchange: ServerWebExchange,
            step: () -> Mono<Void>,
        ) {
            @Suppress("UNCHECKED_CAST")
            val steps =
                exchange.attributes.getOrPut(STEPS) {
                    ArrayDeque<() -> Mono<Void>>().also { all -> exchange.response.beforeCommit { Flux.fromIterable(all).concatMap { it() }.then() } }
                } as ArrayDeque<() -> Mono<Void>>
            steps.addFirst(step)
        }

        public companion object {
            /** The name of the exchange's attribute that holds its [RateLimit]. */
            public const val ATTRIBUTE: String = "polylimit.rateLimit"
            private const val OLDEST_SPRING = 6
            private const val ALLOWED_ORIGIN = "Access-Control-Allow-Origin"
            private const val CHECK = "polylimit.check"
            private const val FIELDS = "polylimit.fields"
            private const val STEPS = "polylimit.steps"
            private val NOT_LIMITED = Decided(null)
        }
    }
