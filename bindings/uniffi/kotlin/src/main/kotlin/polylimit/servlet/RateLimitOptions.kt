package polylimit.servlet

import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import polylimit.Limiter
import polylimit.http.LimitOptions
import polylimit.http.RequestReader

/** The options of the filter. */
public class RateLimitOptions(
    limiter: Limiter,
) : LimitOptions<HttpServletRequest, HttpServletResponse, RateLimitOptions>(limiter)

internal object ServletReader : RequestReader<HttpServletRequest> {
    private const val SPRING_PARAMETERS = "org.springframework.web.servlet.HandlerMapping.uriTemplateVariables"

    override fun method(request: HttpServletRequest): String = request.method

    override fun peer(request: HttpServletRequest): String? = request.remoteAddr

    override fun lines(
        request: HttpServletRequest,
        header: String,
    ): List<String> = request.getHeaders(header).asSequence().toList()

    override fun cookie(
        request: HttpServletRequest,
        name: String,
    ): String? = request.cookies?.firstOrNull { it.name == name }?.value

    override fun user(request: HttpServletRequest): String? = request.remoteUser

    override fun path(request: HttpServletRequest): String? = request.requestURI

    override fun headers(request: HttpServletRequest): List<Pair<String, String>> =
        request.headerNames?.asSequence().orEmpty().flatMap { name -> lines(request, name).map { name to it } }.toList()

    /** Servlets have none. Spring sets some for its handler, for filters that run after its dispatch. */
    override fun pathParameters(request: HttpServletRequest): Map<String, String>? =
        (request.getAttribute(SPRING_PARAMETERS) as? Map<*, *>)
            ?.entries
            ?.associate { (name, value) -> "$name" to "$value" }
}
