package polylimit

import jakarta.servlet.DispatcherType
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import org.eclipse.jetty.ee10.servlet.FilterHolder
import org.eclipse.jetty.ee10.servlet.ServletContextHandler
import org.eclipse.jetty.ee10.servlet.ServletHolder
import org.eclipse.jetty.server.Server
import org.eclipse.jetty.server.ServerConnector
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.util.EnumSet
import java.util.concurrent.atomic.AtomicBoolean

/** The cases of the guard through the filter in Jetty. */
class GuardCasesTest : GuardCases<HttpServletRequest, HttpServletResponse, RateLimitOptions, RateLimitFilter>() {
    override fun options(limiter: Limiter) = RateLimitOptions(limiter)

    override fun limit(options: RateLimitOptions) = RateLimitFilter(options)

    override fun field(
        request: HttpServletRequest,
        name: String,
    ): String? = request.getHeader(name)

    override fun statusOf(response: HttpServletResponse): Int = response.status

    override fun fieldOf(
        response: HttpServletResponse,
        name: String,
    ): String? = response.getHeader(name)

    override fun answerDenied(
        options: RateLimitOptions,
        status: Int,
        body: String,
    ) {
        options.onDenied { _, _, response ->
            response.status = status
            response.writer.write(body)
        }
    }

    override fun serve(
        limits: List<RateLimitFilter>,
        script: Script,
    ): Pair<Int, AutoCloseable> {
        val context = ServletContextHandler()
        context.addServlet(ServletHolder(Handler(script)), "/*")
        for (filter in limits) context.addFilter(FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST))
        val server = Server()
        val connector = ServerConnector(server).apply { host = "127.0.0.1" }
        server.addConnector(connector)
        server.handler = context
        server.start()
        return connector.localPort to AutoCloseable { server.stop() }
    }

    private class Handler(
        private val script: Script,
    ) : HttpServlet() {
        override fun service(
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            script.handle()
            response.status = script.status
            script.fields(response::setHeader)
            script.pieces.forEach { write(response, it) }
            script.open?.let { stayOpen(response, it) }
        }

        /** Writes a piece of the body: by the writer if it is the only one, and otherwise by the stream. */
        private fun write(
            response: HttpServletResponse,
            piece: String,
        ) = if (script.pieces.size == 1) response.writer.print(piece) else response.outputStream.write(piece.encodeToByteArray())

        /** Sends a part of the body, and more of them until this is all or the client has gone. */
        private fun stayOpen(
            response: HttpServletResponse,
            isClosed: AtomicBoolean,
        ) {
            do {
                response.outputStream.write("part".encodeToByteArray())
                response.flushBuffer()
                Thread.sleep(10)
            } while (!isClosed.get())
        }
    }
}
