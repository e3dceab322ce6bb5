package spellings

import io.ktor.server.application.Application
import io.ktor.server.application.install
import io.ktor.server.cio.CIO
import io.ktor.server.engine.embeddedServer
import io.ktor.server.response.header
import io.ktor.server.response.respondText
import io.ktor.server.routing.IgnoreTrailingSlash
import io.ktor.server.routing.Route
import io.ktor.server.routing.RoutingHandler
import io.ktor.server.routing.get
import io.ktor.server.routing.post
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import kotlinx.coroutines.runBlocking
import polylimit.Limiter
import polylimit.Settings
import polylimit.http.KeyPart
import polylimit.ktor.RateLimitOptions
import polylimit.ktor.RateLimitPlugin
import java.util.concurrent.ConcurrentHashMap

private const val QUOTAS = "3/hour fixed_window"
private val ALL = listOf("login", "report", "user")

private fun options(quotas: String = QUOTAS) = RateLimitOptions(Limiter.of(mapOf())).policy(quotas).key(KeyPart.header("x-client"))

private fun limit() = RateLimitPlugin(options())

/** A limit by a document, whose rules are about `path` or `route`. */
private fun byRules(attribute: String): RateLimitPlugin {
    val rules = listOf(Triple("login", "POST", "/login"), Triple("report", "GET", "/report"), Triple("user", "GET", "/v1/users/{id}"))
    val policies = rules.joinToString("") { "policies.${it.first}.quotas = \"$QUOTAS\"\n" }
    val applied =
        rules.joinToString("") { (policy, method, pattern) ->
            "[[rules]]\nmatch = { method = \"$method\", $attribute = \"$pattern\" }\napply = [{ policy = \"$policy\", key = \"{header.x-client}\" }]\n"
        }
    return RateLimitPlugin(RateLimitOptions(Limiter(Settings(document = "polylimit = 1\n$policies$applied"))))
}

/** Answers with how often the handler has run for the client. */
private fun handler(
    runs: ConcurrentHashMap<String, Int>,
    name: String,
): RoutingHandler =
    {
        call.request.headers["x-client"]?.let { call.response.header("x-runs", "$name=${runs.merge("$name $it", 1, Int::plus)}") }
        call.respondText(name)
    }

private fun open(
    site: String,
    handlers: List<String>,
    build: Application.() -> Unit,
) {
    val server = embeddedServer(CIO, port = 0, host = "127.0.0.1", module = build).start()
    println("listening $site ${runBlocking { server.engine.resolvedConnectors().first().port }} ${handlers.joinToString(",")}")
}

/** The handlers, with limits in front of the router, in each route, and in the route of users only. */
private fun serve(
    site: String,
    inFront: RateLimitPlugin? = null,
    inRoutes: RateLimitPlugin? = null,
    inUsers: RateLimitPlugin? = null,
    ignoresSlash: Boolean = false,
) = open(site, if (inUsers == null) ALL else listOf("user")) {
    if (ignoresSlash) install(IgnoreTrailingSlash)
    inFront?.let { install(it) }
    val runs = ConcurrentHashMap<String, Int>()
    routing {
        inRoutes?.let { install(it) }
        post("/login", handler(runs, "login"))
        get("/report", handler(runs, "report"))
        route("/v1") {
            inUsers?.let { install(it) }
            users(handler(runs, "user"))
        }
    }
}

private fun Route.users(handler: RoutingHandler) = route("/users") { get("/{id}", handler) }

fun main(arguments: Array<String>) {
    serve("global", inFront = limit())
    serve("methods", inFront = RateLimitPlugin(options().methods("get", "post")))
    serve("path_rules", inFront = byRules("path"))
    serve("path_rules_without_slashes", inFront = byRules("path"), ignoresSlash = true)
    serve("route", inRoutes = limit())
    serve("route_rules", inRoutes = byRules("route"))
    serve("router", inUsers = limit())
    val once = RateLimitPlugin(options("1/hour fixed_window"))
    open("separate", listOf("GET:/a/1", "GET:/a", "POST:/a", "GET:/b/1", "GET:/a/x/y")) {
        val runs = ConcurrentHashMap<String, Int>()
        routing {
            install(once)
            get("/a/{id}", handler(runs, "one"))
            get("/a", handler(runs, "list"))
            post("/a", handler(runs, "new"))
            get("/a/{path...}", handler(runs, "rest"))
            get("/b/{id}", handler(runs, "other"))
        }
    }
    println("version ktor ${arguments[0]}")
    println("note route in routes")
    println("ready")
    while (System.`in`.read() >= 0) continue
    Runtime.getRuntime().halt(0)
}
