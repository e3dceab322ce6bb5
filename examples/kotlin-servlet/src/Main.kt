// An HTTP server in Kotlin whose requests are limited by the servlet filter of polylimit.

import jakarta.servlet.DispatcherType
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.eclipse.jetty.ee10.servlet.FilterHolder
import org.eclipse.jetty.ee10.servlet.ServletContextHandler
import org.eclipse.jetty.ee10.servlet.ServletHolder
import org.eclipse.jetty.server.Server
import org.eclipse.jetty.server.ServerConnector
import polylimit.Limiter
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.util.EnumSet

private class Hello : HttpServlet() {
    override fun doGet(
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) {
        response.contentType = "application/json"
        response.writer.write("""{"hello":"world"}""")
    }
}

/** The key of a request: the query parameter "user", or "demo". */
private fun user(request: HttpServletRequest): String = request.getParameter("user") ?: "demo"

fun main() {
    val environment = System.getenv()
    val policies = mapOf("demo" to (environment["POLYLIMIT_QUOTA"] ?: "100/minute"))
    Limiter.of(policies, environment["POLYLIMIT_URL"] ?: "local:demo").use { limiter ->
        val filter = RateLimitFilter(RateLimitOptions(limiter).key(::user))
        val context = ServletContextHandler()
        context.addFilter(FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST))
        context.addServlet(ServletHolder(Hello()), "/*")
        val server = Server()
        val connector = ServerConnector(server)
        connector.host = "127.0.0.1"
        // With port 0 the system chooses one.
        connector.port = environment["PORT"]?.toInt() ?: 8080
        server.addConnector(connector)
        // Requests that are under way are answered before the limiter is closed.
        server.handler = context
        server.stopTimeout = 5_000
        server.stopAtShutdown = true
        server.start()
        println("listening on http://127.0.0.1:${connector.localPort}")
        server.join()
    }
}
