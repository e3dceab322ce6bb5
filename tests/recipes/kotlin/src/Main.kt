// Tests of the recipes' programs in Kotlin and Java: tests/recipes/run_kotlin writes each into a package of its own.

import com.sun.net.httpserver.HttpExchange
import com.sun.net.httpserver.HttpServer
import jakarta.servlet.DispatcherType
import jakarta.servlet.Filter
import jakarta.servlet.http.HttpServlet
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletRequestWrapper
import org.eclipse.jetty.ee10.servlet.FilterHolder
import org.eclipse.jetty.ee10.servlet.ServletContextHandler
import org.eclipse.jetty.ee10.servlet.ServletHolder
import org.eclipse.jetty.server.Server
import org.eclipse.jetty.server.ServerConnector
import org.springframework.boot.Banner
import org.springframework.boot.builder.SpringApplicationBuilder
import org.springframework.boot.web.context.WebServerApplicationContext
import org.springframework.boot.web.servlet.FilterRegistrationBean
import org.springframework.context.ApplicationContextInitializer
import org.springframework.context.support.GenericApplicationContext
import polylimit.Limiter
import java.net.InetSocketAddress
import java.net.URI
import java.net.URLEncoder
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpRequest.BodyPublishers
import java.net.http.HttpResponse
import java.net.http.HttpResponse.BodyHandlers
import java.time.Duration
import java.util.EnumSet
import java.util.concurrent.atomic.AtomicInteger
import java.util.function.Supplier
import kotlin.system.exitProcess

private val http = HttpClient.newHttpClient()

private fun <T> same(
    expected: T,
    found: T,
) = check(found == expected) { "$found, not $expected" }

/** The address of a client in a test. */
private const val CLIENT = "x-test-client"

private val clients =
    Filter { request, response, chain ->
        val wrapped =
            object : HttpServletRequestWrapper(request as HttpServletRequest) {
                override fun getRemoteAddr() = getHeader(CLIENT) ?: "192.0.2.7"
            }
        chain.doFilter(wrapped, response)
    }

private fun withServlet(
    filter: Filter,
    servlet: HttpServlet,
    path: String,
    requests: (String) -> Unit,
) {
    val server = Server()
    val connector = ServerConnector(server).apply { host = "127.0.0.1" }
    server.addConnector(connector)
    val context = ServletContextHandler()
    for (each in listOf(clients, filter)) context.addFilter(FilterHolder(each), "/*", EnumSet.of(DispatcherType.REQUEST))
    context.addServlet(ServletHolder(servlet), path)
    server.handler = context
    server.start()
    try {
        requests("http://127.0.0.1:${connector.localPort}$path")
    } finally {
        server.stop()
    }
}

private fun withSpring(
    application: Class<*>,
    path: String,
    requests: (String) -> Unit,
) {
    // A filter without an order comes after the application's own.
    val first = FilterRegistrationBean(clients).apply { order = Int.MIN_VALUE }
    val adding =
        ApplicationContextInitializer<GenericApplicationContext> { context ->
            context.registerBean("clients", FilterRegistrationBean::class.java, Supplier { first })
        }
    val builder = SpringApplicationBuilder(application).initializers(adding).bannerMode(Banner.Mode.OFF)
    builder.properties("server.address=127.0.0.1", "server.port=0", "logging.level.root=off").run().use { context ->
        requests("http://127.0.0.1:${(context as WebServerApplicationContext).webServer.port}$path")
    }
}

/** What others have spent in the store of a page. */
private fun charge(
    page: String,
    policy: Pair<String, String>,
    key: String,
    cost: Long,
) = Limiter.of(mapOf(policy), "${System.getenv("REDIS_URL")}&prefix=$page").use { it.charge(key, cost = cost) }

/** A server that responds to each request by its number, from 1 on. */
private fun withOther(
    respond: (HttpExchange, Int) -> Unit,
    requests: (String, AtomicInteger) -> Unit,
) {
    val counted = AtomicInteger()
    val server = HttpServer.create(InetSocketAddress("127.0.0.1", 0), 0)
    server.createContext("/") { exchange -> exchange.use { respond(it, counted.incrementAndGet()) } }
    server.start()
    try {
        requests("http://127.0.0.1:${server.address.port}", counted)
    } finally {
        server.stop(0)
    }
}

private fun <T> HttpExchange.use(block: (HttpExchange) -> T): T =
    try {
        block(this)
    } finally {
        close()
    }

private fun send(request: HttpRequest.Builder): HttpResponse<String> =
    http.send(request.timeout(Duration.ofMinutes(1)).build(), BodyHandlers.ofString())

private fun encoded(text: String) = URLEncoder.encode(text, Charsets.UTF_8)

private fun login(serve: ((String) -> Unit) -> Unit) =
    serve { address ->
        fun expect(
            times: Int,
            name: String,
            password: String,
            status: Int,
            client: String = "192.0.2.7",
        ) = repeat(times) {
            val form = BodyPublishers.ofString("name=${encoded(name)}&password=${encoded(password)}")
            val request = HttpRequest.newBuilder(URI(address)).header("content-type", "application/x-www-form-urlencoded")
            same(status, send(request.header(CLIENT, client).POST(form)).statusCode())
        }
        expect(10, "alice", "correct horse", 200)
        expect(5, "Alice ", "x", 401)
        expect(3, "alice", "correct horse", 429)
        expect(1, "alice", "correct horse", 200, client = "192.0.2.8")
        expect(1, "", "x", 400)
    }

private fun plans(serve: ((String) -> Unit) -> Unit) =
    serve { address ->
        fun ask(key: String): Pair<Int, String?> {
            val response = send(HttpRequest.newBuilder(URI(address)).header("x-api-key", key))
            val policy = response.headers().firstValue("ratelimit-policy").orElse("")
            return response.statusCode() to Regex("q=\\d+").find(policy)?.value
        }
        same(200 to "q=60", ask("key-of-acme"))
        same(200 to "q=600", ask("key-of-globex"))
        repeat(10) { same(200 to "q=10", ask("another")) }
        same(429 to "q=10", ask("another"))
    }

private fun languageModels(
    page: String,
    serve: ((String) -> Unit) -> Unit,
) = serve { address ->
        fun ask(
            tenant: String?,
            maxTokens: Int = 4000,
        ): HttpResponse<String> {
            val request = HttpRequest.newBuilder(URI("$address?prompt=one+two&max_tokens=$maxTokens"))
            return send(if (tenant == null) request else request.header("x-tenant", tenant))
        }
        // 40 answers of 4002 reserved units: they fit only because each commits 6.
        repeat(40) {
            val response = ask("acme")
            same(200 to "You said: one two ", response.statusCode() to response.body())
        }
        same(400, ask(null).statusCode())
        // What ten minutes pay back.
        charge(page, "model" to "4 concurrent; 100000/minute token_bucket", "acme", 1_000_000)
        same(429, ask("acme").statusCode())
    }

private fun webhooks(
    page: String,
    deliver: (URI, String) -> Duration?,
) = withOther({ exchange, number -> exchange.sendResponseHeaders(if (number == 1) 503 else 204, -1) }) { address, counted ->
    val target = URI(address)
    val outcomes = List(3) { deliver(target, "{}") }
    same(listOf(Duration.ofMinutes(1), Duration.ZERO, Duration.ZERO), outcomes)
    charge(page, "webhook" to "5/s token_bucket burst=10", target.authority, 80)
    check(deliver(target, "{}")!! > Duration.ofSeconds(10))
    same(3, counted.get())
}

private fun outgoingCalls(balance: (String) -> String) =
    withOther({ exchange, number ->
        if (number == 1) {
            exchange.responseHeaders.add("retry-after", "1")
            exchange.sendResponseHeaders(429, -1)
        } else {
            exchange.sendResponseHeaders(200, 0)
            exchange.responseBody.write("12.50".encodeToByteArray())
        }
    }) { address, counted ->
        System.setProperty("other", address)
        same("12.50", balance("alice"))
        same(2, counted.get())
    }

private fun backgroundJobs(run: (String, Duration, () -> Unit) -> Boolean) {
    val outcomes = mutableListOf<Boolean>()

    fun attempt(
        tenant: String,
        job: () -> Unit = {},
    ) {
        outcomes += run(tenant, Duration.ZERO, job)
    }
    attempt("acme") {
        attempt("acme") {
            attempt("acme") { error("there is no slot") }
            attempt("globex")
        }
    }
    same(listOf(false, true, true, true), outcomes)
    // The slots came back.
    check(run("acme", Duration.ofMinutes(1)) {})
}

private val pagesInKotlin =
    mapOf<String, () -> Unit>(
        "login" to { login { withServlet(recipes.login.filter, recipes.login.Login(), "/login", it) } },
        "api-plans" to { plans { withServlet(recipes.apiplans.filter, recipes.apiplans.Items(), "/v1/items", it) } },
        "language-models" to {
            languageModels("kotlin-language-models") {
                withServlet(recipes.languagemodels.filter, recipes.languagemodels.Answer(), "/answer", it)
            }
        },
        "webhooks" to { webhooks("kotlin-webhooks") { target, event -> recipes.webhooks.deliver(target, event) } },
        "outgoing-calls" to { outgoingCalls { recipes.outgoingcalls.balance(it) } },
        "background-jobs" to { backgroundJobs { tenant, timeout, job -> recipes.backgroundjobs.run(tenant, timeout, job) } },
    )

private val pagesInJava =
    mapOf<String, () -> Unit>(
        "login" to { login { withSpring(recipes.java.login.Login::class.java, "/login", it) } },
        "api-plans" to { plans { withSpring(recipes.java.apiplans.Items::class.java, "/v1/items", it) } },
        "language-models" to {
            languageModels("java-language-models") { withSpring(recipes.java.languagemodels.Answers::class.java, "/answer", it) }
        },
        "webhooks" to {
            val program = recipes.java.webhooks.Webhooks()
            webhooks("java-webhooks") { target, event -> program.deliver(target, event) }
        },
        "outgoing-calls" to {
            val program = recipes.java.outgoingcalls.Payments()
            outgoingCalls { program.balance(it) }
        },
        "background-jobs" to {
            val program = recipes.java.backgroundjobs.Exports()
            backgroundJobs { tenant, timeout, job -> program.run(tenant, timeout, job) }
        },
    )

fun main() {
    val languages = mapOf("Kotlin" to pagesInKotlin, "Java" to pagesInJava)
    val tests = languages.flatMap { (language, pages) -> pages.map { (page, test) -> "$page in $language" to test } }
    val failed =
        tests.count { (name, test) ->
            runCatching(test).onFailure { System.err.println("$name: ${it.stackTraceToString()}") }.isFailure
        }
    println("test result: ${if (failed == 0) "ok" else "FAILED"}. ${tests.size - failed} passed; $failed failed;")
    exitProcess(if (failed == 0) 0 else 1)
}
