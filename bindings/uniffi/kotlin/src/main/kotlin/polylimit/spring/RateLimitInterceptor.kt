package polylimit.spring

import jakarta.servlet.DispatcherType
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import jakarta.servlet.http.MappingMatch
import org.springframework.core.SpringVersion
import org.springframework.web.servlet.AsyncHandlerInterceptor
import org.springframework.web.servlet.HandlerMapping
import polylimit.PolylimitException
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import polylimit.servlet.ServletLimit
import polylimit.servlet.ServletLimit.Decided
import polylimit.servlet.ServletReader

/**
 * Limits requests after Spring MVC has found their handlers, so that the route is known: rules see the attribute `route`, keys have
 * path parameters, and quotas without a name have a budget for each route. It does all else as [RateLimitFilter] does, but that it
 * does not see bodies: with a `spentBy` that reads them it is refused, and under a rule of the configuration that does, the cost is charged.
 *
 * `addInterceptor` of Spring's `InterceptorRegistry` adds it, for all handlers or by path patterns.
 */
public class RateLimitInterceptor
    @Throws(PolylimitException::class)
    constructor(
        options: RateLimitOptions,
    ) : AsyncHandlerInterceptor {
        private val limit = ServletLimit(options, HandlerReader)

        init {
            if (options.readsBodies) {
                val advice = "an interceptor does not see the body of a response: use RateLimitFilter, or a field such as header:x-tokens"
                throw PolylimitException.InvalidArgument("spentBy reads the body, and $advice")
            }
            val version = SpringVersion.getVersion()
            val major = version?.substringBefore('.')?.toIntOrNull()
            if (major != null && major < OLDEST_SPRING) {
                throw PolylimitException.InvalidArgument("this is Spring $version: supported are Spring 6.0 and newer, as in Spring Boot 3.0")
            }
        }

        override fun preHandle(
            request: HttpServletRequest,
            response: HttpServletResponse,
            handler: Any,
        ): Boolean {
            if (isContinued(request)) return true
            return when (val decided = limit.decide(request, response)) {
                Decided.NotLimited -> true.also { push(request, null) }
                Decided.Denied -> false
                is Decided.Proceeds -> true.also { push(request, decided.admitted) }
            }
        }

        /** The handler has returned, and the response is made on another thread. */
        override fun afterConcurrentHandlingStarted(
            request: HttpServletRequest,
            response: HttpServletResponse,
            handler: Any,
        ) {
            if (!isContinued(request)) pop(request)?.let { limit.finishLater(it, request, response) }
        }

        override fun afterCompletion(
            request: HttpServletRequest,
            response: HttpServletResponse,
            handler: Any,
            failure: Exception?,
        ) {
            if (isContinued(request)) return
            val admitted = pop(request) ?: return
            try {
                if (failure == null) {
                    limit.finishLater(admitted, request, response)
                } else {
                    admitted.check.use { limit.finishFailed(admitted, request, response) }
                }
            } finally {
                if (!request.isAsyncStarted) admitted.leave(request)
            }
        }

        /** The request was decided when it came in: its response is made now, or one about its error. */
        private fun isContinued(request: HttpServletRequest) =
            request.dispatcherType == DispatcherType.ASYNC || request.dispatcherType == DispatcherType.ERROR

        /** Handlers that forward a request to others are within each other. */
        private fun push(
            request: HttpServletRequest,
            admitted: ServletLimit.Admitted?,
        ) = stack(request).addLast(admitted)

        private fun pop(request: HttpServletRequest): ServletLimit.Admitted? = stack(request).removeLastOrNull()

        @Suppress("UNCHECKED_CAST")
        private fun stack(request: HttpServletRequest): ArrayDeque<ServletLimit.Admitted?> {
            val name = "polylimit.interceptor.${System.identityHashCode(this)}"
            val known = request.getAttribute(name) as? ArrayDeque<ServletLimit.Admitted?>
            return known ?: ArrayDeque<ServletLimit.Admitted?>().also { request.setAttribute(name, it) }
        }

        private companion object {
            const val OLDEST_SPRING = 6
        }
    }

/** Reads requests for which Spring has found a handler. A preflight request has Spring's own handler, and not the one that it asks about. */
private object HandlerReader : ServletReader() {
    /** A segment of a pattern, without the regular expression of a parameter. */
    private val parameter = Regex("\\{(\\w+):(?:[^{}]|\\{[^{}]*})*}")

    override fun route(request: HttpServletRequest): String? {
        val pattern = request.getAttribute(HandlerMapping.BEST_MATCHING_PATTERN_ATTRIBUTE)?.toString() ?: return null
        val mapping = request.httpServletMapping
        // Patterns begin behind the path of a servlet such as `/api/*`.
        val servlet = mapping?.takeIf { it.mappingMatch == MappingMatch.PATH }?.pattern?.removeSuffix("/*").orEmpty()
        return request.servletContext.contextPath + servlet + parameter.replace(pattern, "{$1}").replace(REST, "/{*path}")
    }

    private val REST = Regex("/\\*\\*$")
}
