package polylimit.webflux

import org.springframework.http.HttpHeaders
import org.springframework.http.server.PathContainer
import org.springframework.web.reactive.handler.AbstractHandlerMapping
import org.springframework.web.server.ServerWebExchange
import polylimit.http.RequestReader
import reactor.core.publisher.Mono
import java.security.Principal
import java.util.WeakHashMap
import java.util.function.BiConsumer

/** Reads requests in front of the router of WebFlux. */
internal object ExchangeReader : RequestReader<ServerWebExchange> {
    private const val USER = "polylimit.user"
    private const val PARAMETERS = "org.springframework.web.reactive.HandlerMapping.uriTemplateVariables"

    /** What the routers of applications ignore; an application that ends is forgotten. */
    private val routerPaths = WeakHashMap<Any, Int>()

    /** Finds out what does not come at once. */
    fun prepare(exchange: ServerWebExchange): Mono<Void> =
        exchange.getPrincipal<Principal>().doOnNext { exchange.attributes[USER] = it.name }.then()

    override fun method(request: ServerWebExchange): String = request.request.method.name()

    override fun peer(request: ServerWebExchange): String? = request.request.remoteAddress?.run { address?.hostAddress ?: hostString }

    override fun lines(
        request: ServerWebExchange,
        header: String,
    ): List<String> = headers(request).filter { it.first.equals(header, ignoreCase = true) }.map { it.second }

    override fun cookie(
        request: ServerWebExchange,
        name: String,
    ): String? = request.request.cookies.getFirst(name)?.value

    override fun user(request: ServerWebExchange): String? = request.getAttribute(USER)

    /** Those that a filter behind the router would see. */
    override fun pathParameters(request: ServerWebExchange): Map<String, String>? = request.getAttribute(PARAMETERS)

    override fun path(request: ServerWebExchange): String? = request.request.path.value()

    override fun headers(request: ServerWebExchange): List<Pair<String, String>> =
        buildList { request.request.headers.each { name, values -> for (value in values) add(name to value) } }

    /** Patterns match the values of segments, without their parameters. */
    override fun routerPaths(request: ServerWebExchange): Int {
        val application = request.applicationContext ?: return RequestReader.DROPS_PARAMETERS or RequestReader.IGNORES_CASE
        return synchronized(routerPaths) {
            routerPaths.getOrPut(application) {
                val mappings = application.getBeansOfType(AbstractHandlerMapping::class.java, true, false).values
                val ignoresCase = mappings.any { it.pathPatternParser.parse("/a").matches(PathContainer.parsePath("/A")) }
                RequestReader.DROPS_PARAMETERS or if (ignoresCase) RequestReader.IGNORES_CASE else 0
            }
        }
    }
}

/** Spring 6 has these as methods of a map, and Spring 7 as methods of its own with other arguments. */
private val REMOVE = HttpHeaders::class.java.methods.first { it.name == "remove" && it.parameterCount == 1 && !it.isBridge }

internal fun HttpHeaders.without(name: String) {
    REMOVE.invoke(this, name)
}

internal fun HttpHeaders.each(action: (String, List<String>) -> Unit) = forEach(BiConsumer { name, values -> action(name, values) })
