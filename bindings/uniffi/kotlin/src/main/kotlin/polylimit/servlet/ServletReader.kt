package polylimit.servlet

import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.MappingMatch
import polylimit.http.RequestReader

/** Reads requests in a filter, where the container has chosen a servlet and nothing inside of it has been chosen. */
internal open class ServletReader : RequestReader<HttpServletRequest> {
    override fun method(request: HttpServletRequest): String = request.method

    override fun peer(request: HttpServletRequest): String? = request.remoteAddr

    override fun lines(
        request: HttpServletRequest,
        header: String,
    ): List<String> = request.getHeaders(header)?.asSequence().orEmpty().toList()

    override fun cookie(
        request: HttpServletRequest,
        name: String,
    ): String? = request.cookies?.firstOrNull { it.name == name }?.value

    override fun user(request: HttpServletRequest): String? = request.remoteUser

    override fun path(request: HttpServletRequest): String? = request.requestURI

    override fun headers(request: HttpServletRequest): List<Pair<String, String>> =
        request.headerNames?.asSequence().orEmpty().flatMap { name -> lines(request, name).map { name to it } }.toList()

    /** Containers drop parameters before they choose a servlet. */
    override fun routerPaths(request: HttpServletRequest): Int = RequestReader.DROPS_PARAMETERS

    /**
     * The pattern of the servlet. The default servlet has none: what serves every path that no other servlet serves, such as Spring's,
     * has routes of its own.
     */
    override fun route(request: HttpServletRequest): String? {
        val mapping = request.httpServletMapping ?: return null
        val context = request.servletContext?.contextPath.orEmpty()
        return when (mapping.mappingMatch) {
            MappingMatch.EXACT -> context + mapping.pattern
            MappingMatch.PATH -> context + mapping.pattern.removeSuffix("*") + "{*path}"
            MappingMatch.EXTENSION -> context + "/{*path}" + mapping.pattern.removePrefix("*")
            MappingMatch.CONTEXT_ROOT -> "$context/"
            else -> null
        }
    }

    /** Servlets have none. Spring sets some for its handler, for what runs after its dispatch. */
    override fun pathParameters(request: HttpServletRequest): Map<String, String>? =
        (request.getAttribute(SPRING_PARAMETERS) as? Map<*, *>)
            ?.entries
            ?.associate { (name, value) -> "$name" to "$value" }

    private companion object {
        const val SPRING_PARAMETERS = "org.springframework.web.servlet.HandlerMapping.uriTemplateVariables"
    }
}
