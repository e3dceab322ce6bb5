package polylimit

import io.ktor.http.HttpHeaders
import io.ktor.http.HttpStatusCode
import io.ktor.server.application.Application
import io.ktor.server.application.call
import io.ktor.server.application.install
import io.ktor.server.auth.Authentication
import io.ktor.server.auth.UserIdPrincipal
import io.ktor.server.auth.authenticate
import io.ktor.server.auth.basic
import io.ktor.server.auth.principal
import io.ktor.server.cio.CIO
import io.ktor.server.engine.embeddedServer
import io.ktor.server.plugins.statuspages.StatusPages
import io.ktor.server.response.header
import io.ktor.server.response.respond
import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.head
import io.ktor.server.routing.options
import io.ktor.server.routing.post
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.http.KeyPart
import polylimit.ktor.RateLimitOptions
import polylimit.ktor.RateLimitPlugin
import java.io.FileNotFoundException
import java.lang.reflect.InvocationTargetException
import java.net.Socket
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.util.Base64
import java.util.concurrent.TimeUnit

/** Serves applications of Ktor. */
abstract class KtorServer {
    private val client = HttpClient.newHttpClient()
    protected val limiter = Limiter.of(mapOf("api" to "2/hour", "model" to "1 concurrent; 100/hour"))

    protected fun options() = RateLimitOptions(limiter).policy("api")

    protected class Service(
        val port: Int,
        private val client: HttpClient,
    ) {
        fun send(
            path: String,
            method: String = "GET",
            vararg headers: Pair<String, String>,
        ): HttpResponse<String> {
            val builder = HttpRequest.newBuilder(URI("http://127.0.0.1:$port$path")).method(method, HttpRequest.BodyPublishers.noBody())
            for ((name, value) in headers) builder.header(name, value)
            return client.send(builder.build(), HttpResponse.BodyHandlers.ofString())
        }

        fun statuses(
            vararg paths: String,
            method: String = "GET",
        ) = paths.map { send(it, method).statusCode() }
    }

    protected fun serve(
        module: Application.() -> Unit,
        test: Service.() -> Unit,
    ) {
        val server = embeddedServer(CIO, port = 0, host = "127.0.0.1", module = module).start()
        try {
            Service(runBlocking { server.engine.resolvedConnectors().first().port }, client).test()
        } finally {
            server.stop(0, 0)
        }
    }
}

/** What the plugin of Ktor does that the cases of the guard do not show. */
class KtorTest : KtorServer() {
    private fun assertSoonLeft(vararg remaining: Long) {
        val left = { limiter.peek("k", "model").quotas.map { it.remaining } }
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
        while (left() != remaining.toList() && System.nanoTime() < end) Thread.sleep(10)
        assertEquals(remaining.toList(), left())
    }

    @Test
    fun `limit in a route counts each handler by itself`() =
        serve({
            routing {
                route("/v1") {
                    install(RateLimitPlugin(RateLimitOptions(limiter).policy("1/hour").key { "k" }))
                    get("/users/{id}") { call.respondText("user") }
                    get("/files/{path...}") { call.respondText("file") }
                    post("/users/{id}") { call.respondText("new") }
                }
                get("/v2") { call.respondText("free") }
            }
        }) {
            assertEquals(listOf(200, 429, 200, 429), statuses("/v1/users/1", "/v1/users/2", "/v1/files/a/b", "/v1/files/c"))
            assertEquals(listOf(200, 429), statuses("/v1/users/1", "/v1/users/2", method = "POST"))
            assertEquals(listOf(200, 404), statuses("/v2", "/v1/nothing"))
        }

    @Test
    fun `rules see the pattern of the route`() {
        val patterns = listOf("/", "/api/{version}/items", "/api/{version}/items/", "/all/{*path}", "/maybe/{id}", "/pre{id}post", "/any/{segment}/x", "/[0-9]+")
        val policies = patterns.indices.joinToString("\n") { "policies.p$it.quotas = \"1/hour\"" }
        val rules = patterns.withIndex().joinToString("\n") { (at, it) -> "[[rules]]\nmatch = { route = '$it' }\napply = [{ policy = 'p$at', key = 'k' }]" }
        Limiter(Settings(document = "polylimit = 1\n$policies\n$rules")).use { byRules ->
            serve({
                routing {
                    install(RateLimitPlugin(RateLimitOptions(byRules)))
                    get("/") { call.respondText("") }
                    route("/api/{version}") {
                        get("/items") { call.respondText("") }
                        get("/items/") { call.respondText("") }
                    }
                    get("/all/{path...}") { call.respondText("") }
                    get("/maybe/{id?}") { call.respondText("") }
                    get("/pre{id}post") { call.respondText("") }
                    get("/any/*/x") { call.respondText("") }
                    get(Regex("[0-9]+")) { call.respondText("") }
                }
            }) {
                val paths = listOf("/", "/api/1/items", "/api/1/items/", "/all/a/b", "/maybe", "/pre7post", "/any/1/x", "/42")
                assertEquals(paths.indices.map { "p$it" }, paths.map { send(it).headers().firstValue("ratelimit").orElse("").substringBefore(';').trim('"') })
                assertEquals(paths.map { 429 }, statuses(*paths.toTypedArray()))
                assertEquals(429, send("/maybe/7").statusCode())
            }
        }
    }

    @Test
    fun `preflights count where a handler runs for them`() =
        serve({
            install(RateLimitPlugin(options().key { "front" }))
            routing {
                route("/in") {
                    install(RateLimitPlugin(options().key { "handler" }))
                    options { call.respondText("") }
                }
                options("/out") { call.respondText("") }
            }
        }) {
            fun preflight(path: String) = send(path, "OPTIONS", "Origin" to "https://app.example", "Access-Control-Request-Method" to "GET").statusCode()
            assertEquals(listOf(200, 200, 200), List(3) { preflight("/out") })
            assertEquals(listOf(200, 200, 429), List(3) { preflight("/in") })
        }

    @Test
    fun `handlers read the decisions and their own fields stay`() =
        serve({
            install(RateLimitPlugin(options()))
            routing {
                get("/") {
                    call.response.header("ratelimit", "mine")
                    call.respondText("${call.attributes[RateLimitPlugin.RATE_LIMIT].decision?.remaining}")
                }
            }
        }) {
            val answer = send("/")
            assertEquals(listOf("1", "mine", "\"api\";q=2;w=3600"), listOf(answer.body()) + listOf("ratelimit", "ratelimit-policy").map { answer.headers().firstValue(it).get() })
        }

    @Test
    fun `response that a page for failures makes is the one that counts`() =
        serve({
            install(StatusPages) { exception<ArithmeticException> { call, _ -> call.respondText("busy", status = HttpStatusCode.Conflict) } }
            routing {
                install(RateLimitPlugin(options().count { _, response -> response.status()?.value !in listOf(409, 500) }))
                get("/") { throw ArithmeticException("broken") }
                // The server makes the response to these.
                get("/file") { throw FileNotFoundException("missing") }
                get("/late") { withTimeout(1) { awaitCancellation() } }
            }
        }) {
            repeat(3) {
                val answer = send("/")
                assertEquals(listOf(409, "busy"), listOf(answer.statusCode(), answer.body()))
                assertTrue("r=2" in answer.headers().firstValue("ratelimit").get())
                assertEquals(500, send("/file").statusCode())
            }
            assertEquals(listOf(504, 504, 429), statuses("/late", "/late", "/late"))
        }

    @Test
    fun `denial is a problem document, which the options may replace`() =
        serve({
            routing {
                route("/plain") {
                    install(RateLimitPlugin(RateLimitOptions(limiter).policy("1/hour").corsOrigins("*")))
                    get { call.respondText("") }
                    head { call.respond(HttpStatusCode.OK) }
                }
                route("/own") {
                    install(RateLimitPlugin(RateLimitOptions(limiter).policy("1/hour").onDenied { _, call, response -> response.header("x-own", call.request.local.method.value) }))
                    get { call.respondText("") }
                }
            }
        }) {
            val (_, denied) = List(2) { send("/plain", "GET", HttpHeaders.Accept to "application/json", HttpHeaders.Origin to "https://app.example") }
            assertEquals(listOf("application/problem+json", "*"), listOf("content-type", "access-control-allow-origin").map { denied.headers().firstValue(it).get() })
            assertTrue(denied.headers().firstValue("retry-after").get().toLong() > 0)
            assertTrue("\"status\":429" in denied.body())
            val head = send("/plain", "HEAD")
            assertEquals(listOf(429, "", "application/problem+json"), listOf(head.statusCode(), head.body(), head.headers().firstValue("content-type").get()))
            assertEquals(429, send("/plain").statusCode())
            val (_, own) = List(2) { send("/own") }
            assertEquals(listOf(429, "", "GET"), listOf(own.statusCode(), own.body(), own.headers().firstValue("x-own").get()))
        }

    @Test
    fun `place is free again however a call ends`() {
        val waits = CompletableDeferred<Unit>()
        val hasBegun = CompletableDeferred<Unit>()
        serve({
            install(RateLimitPlugin(RateLimitOptions(limiter).policy("model").key { "k" }.spent { _, _ -> 7 }))
            routing {
                get("/") { call.respondText("") }
                get("/broken") { error("broken") }
                get("/silent") { }
                get("/slow") {
                    hasBegun.complete(Unit)
                    waits.await()
                    call.respondText("")
                }
            }
        }) {
            assertEquals(listOf(200), statuses("/"))
            assertSoonLeft(1, 93)
            // A handler that fails has spent the cost.
            assertEquals(listOf(500), statuses("/broken"))
            assertSoonLeft(1, 92)
            assertEquals(listOf(404), statuses("/missing"))
            assertSoonLeft(1, 85)
            assertEquals(listOf(404), statuses("/silent"))
            assertSoonLeft(1, 78)
            Socket("127.0.0.1", port).use {
                it.outputStream.write("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n".encodeToByteArray())
                runBlocking { hasBegun.await() }
                assertSoonLeft(0, 77)
            }
            waits.complete(Unit)
            assertSoonLeft(1, 71)
        }
    }

    @Test
    fun `one plugin limits several routes and mistakes are refused`() {
        val shared = RateLimitPlugin(RateLimitOptions(limiter).policy("1/hour").scope("both"))
        serve({
            routing {
                for (path in listOf("/a", "/b")) {
                    route(path) {
                        install(shared)
                        get { call.respondText("") }
                    }
                }
            }
        }) { assertEquals(listOf(200, 429), statuses("/a", "/b")) }
        assertThrows(PolylimitException.InvalidArgument::class.java) { RateLimitPlugin(RateLimitOptions(limiter).policy("nothing")) }
    }

    @Test
    fun `Ktor without what 3 has brought is refused`() {
        val old =
            object : ClassLoader(javaClass.classLoader) {
                override fun loadClass(
                    name: String,
                    resolve: Boolean,
                ): Class<*> {
                    if (name == "io.ktor.server.application.PipelineCall") throw ClassNotFoundException(name)
                    if (!name.startsWith("polylimit.ktor.")) return super.loadClass(name, resolve)
                    val bytes = getResourceAsStream("${name.replace('.', '/')}.class")!!.use { it.readBytes() }
                    return findLoadedClass(name) ?: defineClass(name, bytes, 0, bytes.size)
                }
            }
        val options = old.loadClass("polylimit.ktor.RateLimitOptions").getConstructor(Limiter::class.java)
        val refused = assertThrows(InvocationTargetException::class.java) { options.newInstance(limiter) }.cause as PolylimitException.InvalidArgument
        assertTrue("supported are Ktor 3.0 and newer" in refused.message.orEmpty())
    }
}

class KtorAuthenticationTest : KtorServer() {
    @Test
    fun `limit in a route runs after authentication and has its user and its parameters`() =
        serve({
            install(Authentication) { basic { validate { if (it.password == "secret") UserIdPrincipal(it.name) else null } } }
            routing {
                authenticate {
                    route("/{tenant}") {
                        val options = options().user { it.principal<UserIdPrincipal>()?.name }
                        install(RateLimitPlugin(options.key(KeyPart.path("tenant"), KeyPart.user())))
                        get { call.respondText("in") }
                    }
                }
            }
        }) {
            fun by(
                user: String,
                tenant: String,
                password: String = "secret",
            ) = send("/$tenant", "GET", "Authorization" to "Basic " + Base64.getEncoder().encodeToString("$user:$password".encodeToByteArray())).statusCode()
            repeat(3) { assertEquals(401, by("ann", "a", "wrong")) }
            assertEquals(listOf(200, 200, 429), List(3) { by("ann", "a") })
            assertEquals(listOf(200, 200), listOf(by("bob", "a"), by("ann", "b")))
        }

    @Test
    fun `limit in front of the router counts failed authentications`() =
        serve({
            install(Authentication) { basic { validate { null } } }
            install(RateLimitPlugin(options()))
            routing { authenticate { get("/") { call.respondText("in") } } }
        }) { assertEquals(listOf(401, 401, 429), statuses("/", "/", "/")) }
}
