package polylimit

import io.ktor.http.ContentType
import io.ktor.http.HttpMethod
import io.ktor.http.HttpStatusCode
import io.ktor.server.application.ApplicationCall
import io.ktor.server.application.install
import io.ktor.server.cio.CIO
import io.ktor.server.engine.ApplicationEngineFactory
import io.ktor.server.engine.embeddedServer
import io.ktor.server.netty.Netty
import io.ktor.server.request.httpMethod
import io.ktor.server.response.ApplicationResponse
import io.ktor.server.response.header
import io.ktor.server.response.respond
import io.ktor.server.response.respondBytes
import io.ktor.server.response.respondBytesWriter
import io.ktor.server.response.respondText
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import io.ktor.utils.io.writeStringUtf8
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import polylimit.ktor.RateLimitOptions
import polylimit.ktor.RateLimitPlugin
import java.util.logging.Level
import java.util.logging.Logger

/** The cases of the guard through the plugin of Ktor, in front of the router. */
abstract class KtorCases(
    private val engine: ApplicationEngineFactory<*, *>,
) : GuardCases<ApplicationCall, ApplicationResponse, RateLimitOptions, RateLimitPlugin>() {
    override fun options(limiter: Limiter) = RateLimitOptions(limiter)

    override fun limit(options: RateLimitOptions) = RateLimitPlugin(options)

    override fun field(
        request: ApplicationCall,
        name: String,
    ): String? = request.request.headers[name]

    override fun statusOf(response: ApplicationResponse): Int = response.status()?.value ?: 200

    override fun fieldOf(
        response: ApplicationResponse,
        name: String,
    ): String? = response.headers[name]

    override fun answerDenied(
        options: RateLimitOptions,
        status: Int,
        body: String,
    ) {
        options.onDenied { _, call -> call.respondText(body, status = HttpStatusCode.fromValue(status)) }
    }

    override fun serve(
        limits: List<RateLimitPlugin>,
        script: Script,
    ): Pair<Int, AutoCloseable> {
        val server =
            embeddedServer(engine, port = 0, host = "127.0.0.1") {
                limits.forEach { install(it) }
                routing { route("/{...}") { handle { answer(call, script) } } }
            }.start()
        val port = runBlocking { server.engine.resolvedConnectors().first().port }
        return port to AutoCloseable { server.stop(0, 1000) }
    }

    private suspend fun answer(
        call: ApplicationCall,
        script: Script,
    ) {
        script.handle()
        val status = HttpStatusCode.fromValue(script.status)
        var type: ContentType? = null
        script.fields { name, value -> if (name == "content-type") type = ContentType.parse(value) else call.response.header(name, value) }
        val open = script.open
        val pieces = script.pieces
        when {
            // As the plugin AutoHeadResponse does: engines would send the body.
            call.request.httpMethod == HttpMethod.Head -> call.respond(status)
            // More parts, until this is all or the client has gone.
            open != null ->
                call.respondBytesWriter(type, status) {
                    do {
                        writeStringUtf8("part")
                        flush()
                        delay(10)
                    } while (!open.get())
                }
            pieces.size == 1 -> call.respondBytes(pieces.single().encodeToByteArray(), type, status)
            else -> call.respondBytesWriter(type, status) { pieces.forEach { writeStringUtf8(it) } }
        }
    }
}

class KtorCasesTest : KtorCases(CIO)

class KtorNettyCasesTest : KtorCases(Netty) {
    private companion object {
        /** Where a client's connection is open when the server stops, Netty warns of tasks that come too late. */
        val logger: Logger = Logger.getLogger("io.netty").apply { level = Level.SEVERE }
    }
}
