package polylimit.servlet

import jakarta.servlet.Filter
import jakarta.servlet.FilterChain
import jakarta.servlet.FilterConfig
import jakarta.servlet.ServletException
import jakarta.servlet.ServletRequest
import jakarta.servlet.ServletResponse
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import polylimit.PolylimitException
import polylimit.http.RateLimit
import polylimit.http.RequestReader
import polylimit.servlet.ServletLimit.Decided
import java.util.TreeSet

/**
 * Limits the requests that pass through it, in any servlet container and in Spring Boot.
 *
 * The request has the decisions as the attribute [ATTRIBUTE], the response its fields; a request that does not proceed is
 * answered by a problem document or text: with 429, with 503 when the store could not be asked, with 400 when its key is
 * missing and required. Several filters on one request make one set of fields together, and charge the same policy and key
 * once; what one has spent is refunded when one further in denies. Mistakes in the options are refused when the filter is made.
 */
public class RateLimitFilter
    @Throws(PolylimitException::class)
    constructor(
        options: RateLimitOptions,
    ) : Filter {
        private val reader = FilterReader()
        private val limit = ServletLimit(options, reader)

        /** Learns where the filter is mounted. */
        @Throws(ServletException::class)
        override fun init(config: FilterConfig) {
            val context = config.servletContext ?: return
            if (context.majorVersion < OLDEST_SERVLETS) {
                throw ServletException(
                    "the container has Jakarta Servlet ${context.majorVersion}.${context.minorVersion}: " +
                        "supported are 6.0 and newer, such as Tomcat 10.1 and Jetty 12",
                )
            }
            reader.mounted(config)
        }

        override fun doFilter(
            request: ServletRequest,
            response: ServletResponse,
            chain: FilterChain,
        ) {
            if (request !is HttpServletRequest || response !is HttpServletResponse) return chain.doFilter(request, response)
            when (val decided = limit.decide(request, response)) {
                Decided.NotLimited -> chain.doFilter(request, response)
                Decided.Denied -> Unit
                is Decided.Proceeds -> proceed(decided.admitted, request, response, chain)
            }
        }

        private fun proceed(
            admitted: ServletLimit.Admitted,
            request: HttpServletRequest,
            response: HttpServletResponse,
            chain: FilterChain,
        ) {
            try {
                limit.handle(admitted, request, response) { chain.doFilter(request, limit.responseOf(admitted, response)) }
                limit.finishLater(admitted, request, response)
            } finally {
                // A request that continues asynchronously is still within the limit.
                if (!request.isAsyncStarted) admitted.leave(request)
            }
        }

        public companion object {
            /** The name of the request's attribute that holds its [RateLimit]. */
            public const val ATTRIBUTE: String = "polylimit.rateLimit"
            private const val OLDEST_SERVLETS = 6
        }
    }

/** Reads requests in a filter, which knows its mount and finds out what the router behind it ignores. */
private class FilterReader : ServletReader() {
    /** The patterns under which the filter is registered, with the paths of their contexts. */
    private val mounts = TreeSet<String>()

    /** The name of the budget of this filter; null for one that sees all requests of the server. */
    @Volatile
    private var budget: String? = null

    @Volatile
    private var routerPaths: Int? = null
    private val suffix = Regex("(?:\\.|%2[eE]).*")
    private val dots = Regex("(?:\\.|%2[eE]){1,2}(?:;.*)?")

    @Synchronized
    fun mounted(config: FilterConfig) {
        val context = config.servletContext
        val registration = context.getFilterRegistration(config.filterName) ?: return
        registration.urlPatternMappings.mapTo(mounts) { context.contextPath + it }
        registration.servletNameMappings.mapTo(mounts) { "${context.contextPath} servlet $it" }
        budget = mounts.joinToString(" ").takeUnless { it == "/*" || it.isEmpty() }
    }

    override fun budget(request: HttpServletRequest): String? = budget

    /** Where Spring accepts suffixes, all from the first dot of the last segment on is one: `/login.x.json` and `/login.` reach `/login`. */
    override fun path(request: HttpServletRequest): String? {
        val path = super.path(request) ?: return null
        val (front, last) = path.substringBeforeLast('/') to path.substringAfterLast('/')
        val hasSuffix = routerPaths(request) and RequestReader.ACCEPTS_SUFFIX != 0 && !dots.matches(last)
        return if (hasSuffix) "$front/${suffix.replace(last, "")}" else path
    }

    override fun routerPaths(request: HttpServletRequest): Int =
        routerPaths ?: (super.routerPaths(request) or SpringRouter.paths(request.servletContext)).also { routerPaths = it }
}
