package polylimit

import jakarta.servlet.DispatcherType
import jakarta.servlet.Filter
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.eclipse.jetty.ee10.servlet.FilterHolder
import org.eclipse.jetty.ee10.servlet.ServletContextHandler
import org.eclipse.jetty.ee10.servlet.ServletHolder
import org.eclipse.jetty.server.Server
import org.eclipse.jetty.server.ServerConnector
import polylimit.http.RateLimit
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.net.Socket
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.time.Duration
import java.util.EnumSet

/** Answers with what is left, and with the status that the path ends with; or throws where the path asks for it. */
private class Left : HttpServlet() {
    override fun doGet(
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) {
        check(request.pathInfo != "/throws") { "broken" }
        response.status = request.pathInfo.substringAfterLast('/').toIntOrNull() ?: 200
        val decided = request.getAttribute(RateLimitFilter.ATTRIBUTE) as RateLimit?
        response.writer.write("${decided?.decision?.remaining}")
    }
}

/** Serves a `/login` that counts its executions. */
class CountedLogin : HttpServlet() {
    var runs = 0
        private set

    override fun service(
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) {
        runs += 1
        response.writer.write("in")
    }
}

/** Serves filters in Jetty, with the servlet [Left] behind them. */
abstract class ServletServer {
    private val client = HttpClient.newHttpClient()

    /** The port of the server that serves at the moment. */
    protected var port = 0
        private set

    protected fun serve(
        vararg all: RateLimitOptions,
        requests: (get: (String, List<Pair<String, String>>) -> HttpResponse<String>) -> Unit,
    ) = serveFilters(*Array(all.size) { RateLimitFilter(all[it]) }, requests = requests)

    protected fun serveFilters(
        vararg all: Filter,
        requests: (get: (String, List<Pair<String, String>>) -> HttpResponse<String>) -> Unit,
    ) {
        val server = Server()
        val connector = ServerConnector(server).apply { host = "127.0.0.1" }
        server.addConnector(connector)
        val context = ServletContextHandler()
        context.addServlet(ServletHolder(Left()).apply { isAsyncSupported = true }, "/*")
        for (filter in all) context.addFilter(FilterHolder(filter).apply { isAsyncSupported = true }, "/*", EnumSet.of(DispatcherType.REQUEST))
        server.handler = context
        server.start()
        port = connector.localPort
        try {
            requests { path, fields -> client.send(get(path, fields), HttpResponse.BodyHandlers.ofString()) }
        } finally {
            server.stop()
        }
    }

    /** Serves a servlet at a path, with filters at theirs, in a context. The requests are text that is sent as it is. */
    protected fun serveRaw(
        servlet: HttpServlet,
        path: String,
        filters: List<Pair<Filter, String>>,
        contextPath: String = "/",
        requests: (send: (String, List<String>) -> List<String>) -> Unit,
    ) {
        val server = Server()
        val connector = ServerConnector(server).apply { host = "127.0.0.1" }
        server.addConnector(connector)
        val context = ServletContextHandler(contextPath)
        context.addServlet(ServletHolder(servlet), path)
        for ((filter, pattern) in filters) context.addFilter(FilterHolder(filter), pattern, EnumSet.of(DispatcherType.REQUEST))
        server.handler = context
        server.start()
        try {
            requests { line, fields -> answer(connector.localPort, "$line HTTP/1.1", fields + "Host: a" + "Connection: close") }
        } finally {
            server.stop()
        }
    }

    /** The lines of the response to a request. */
    private fun answer(
        port: Int,
        line: String,
        fields: List<String>,
    ): List<String> =
        Socket("127.0.0.1", port).use { socket ->
            socket.soTimeout = 60_000
            socket.getOutputStream().write((listOf(line) + fields + "" + "").joinToString("\r\n").encodeToByteArray())
            socket.getInputStream().readAllBytes().decodeToString().lines()
        }

    private fun get(
        path: String,
        fields: List<Pair<String, String>>,
    ) = HttpRequest
        .newBuilder(URI("http://127.0.0.1:$port$path"))
        .timeout(Duration.ofSeconds(60))
        .apply { fields.forEach { header(it.first, it.second) } }
        .build()

    protected fun HttpResponse<*>.field(name: String) = headers().firstValue(name).orElse(null)
}
