package polylimit.ktor

import io.ktor.server.application.ApplicationCall
import io.ktor.server.request.httpMethod
import io.ktor.server.request.uri
import io.ktor.server.routing.PathSegmentConstantRouteSelector
import io.ktor.server.routing.PathSegmentOptionalParameterRouteSelector
import io.ktor.server.routing.PathSegmentParameterRouteSelector
import io.ktor.server.routing.PathSegmentRegexRouteSelector
import io.ktor.server.routing.PathSegmentTailcardRouteSelector
import io.ktor.server.routing.PathSegmentWildcardRouteSelector
import io.ktor.server.routing.RootRouteSelector
import io.ktor.server.routing.RouteSelector
import io.ktor.server.routing.RoutingNode
import io.ktor.server.routing.RoutingPipelineCall
import io.ktor.server.routing.TrailingSlashRouteSelector
import polylimit.http.RequestReader

/** Reads calls: in front of the router, or behind it. */
internal class CallReader(
    private val options: RateLimitOptions,
    override val isOnHandler: Boolean,
) : RequestReader<ApplicationCall> {
    override fun method(request: ApplicationCall): String = request.request.httpMethod.value

    override fun peer(request: ApplicationCall): String? = request.request.local.remoteAddress

    override fun lines(
        request: ApplicationCall,
        header: String,
    ): List<String> = request.request.headers.getAll(header).orEmpty()

    override fun cookie(
        request: ApplicationCall,
        name: String,
    ): String? = request.request.cookies[name]

    override fun user(request: ApplicationCall): String? = options.user?.apply(request)

    override fun pathParameters(request: ApplicationCall): Map<String, String>? =
        (request as? RoutingPipelineCall)?.pathParameters?.entries()?.associate { (name, values) -> name to values.joinToString("/") }

    override fun path(request: ApplicationCall): String = request.request.uri.substringBefore('?')

    override fun route(request: ApplicationCall): String? {
        val nodes = generateSequence((request as? RoutingPipelineCall ?: return null).route, RoutingNode::parent).toList()
        val segments = nodes.asReversed().mapNotNull { segment(it.selector) }
        // A slash at the end counts where nothing follows it.
        return segments.filterIndexed { at, segment -> segment.isNotEmpty() || at == segments.lastIndex }.joinToString("/", "/")
    }

    override fun headers(request: ApplicationCall): List<Pair<String, String>> =
        request.request.headers.entries().flatMap { (name, values) -> values.map { name to it } }

    /** What a node of the router adds to the pattern of a path: nothing where it is about something else. */
    private fun segment(selector: RouteSelector): String? =
        when (selector) {
            is RootRouteSelector -> selector.toString().trim('/').ifEmpty { null }
            is PathSegmentConstantRouteSelector -> selector.value
            is PathSegmentParameterRouteSelector -> "${selector.prefix.orEmpty()}{${selector.name}}${selector.suffix.orEmpty()}"
            is PathSegmentOptionalParameterRouteSelector -> "${selector.prefix.orEmpty()}{${selector.name}}${selector.suffix.orEmpty()}"
            is PathSegmentTailcardRouteSelector -> "${selector.prefix}{*${selector.name.ifEmpty { "rest" }}}"
            is PathSegmentWildcardRouteSelector -> "{segment}"
            is PathSegmentRegexRouteSelector -> selector.toString().removeSurrounding("Regex(", ")")
            is TrailingSlashRouteSelector -> ""
            else -> null
        }
}
