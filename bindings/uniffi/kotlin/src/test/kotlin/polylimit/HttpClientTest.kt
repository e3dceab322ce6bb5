package polylimit

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.ObjectMapper
import com.sun.net.httpserver.HttpServer
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.http.RateLimitedHttpClient
import polylimit.http.ThrottledException
import java.io.File
import java.net.InetSocketAddress
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpRequest.BodyPublishers
import java.net.http.HttpResponse.BodyHandlers
import java.time.Duration
import java.util.concurrent.CancellationException
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.ExecutionException

/** Waits of servers and backoffs by the cases of all languages, and throttled clients against servers of this process. */
class HttpClientTest {
    private class Server(
        vararg script: Pair<Int, Map<String, String>>,
    ) : AutoCloseable {
        private val answers = ConcurrentLinkedQueue(script.toList())
        private val server = HttpServer.create(InetSocketAddress("127.0.0.1", 0), 0)
        val seen = CopyOnWriteArrayList<String>()
        val times = CopyOnWriteArrayList<Long>()
        val uri: URI get() = URI("http://127.0.0.1:${server.address.port}/")

        init {
            server.createContext("/") { exchange ->
                times += System.nanoTime()
                seen += "${exchange.requestMethod} ${exchange.requestBody.readAllBytes().decodeToString()}".trim()
                val (status, fields) = answers.poll() ?: (200 to emptyMap())
                for ((name, value) in fields) exchange.responseHeaders[name] = value
                exchange.sendResponseHeaders(status, -1)
                exchange.close()
            }
            server.start()
        }

        /** The time between the first two requests. */
        fun between(): Duration = Duration.ofNanos(times[1] - times[0])

        override fun close() = server.stop(0)
    }

    private val opened = mutableListOf<AutoCloseable>()

    private fun serve(vararg script: Pair<Int, Map<String, String>>) = Server(*script).also { opened += it }

    @AfterEach
    fun close() = opened.forEach(AutoCloseable::close)

    private val limiter = Limiter(Settings()).also { opened += it }

    private fun client(
        policy: String = "1000000/s token_bucket",
        backoff: Backoff? = null,
        cost: Long? = null,
        key: ((HttpRequest) -> String)? = null,
    ): HttpClient {
        val client = HttpClient.newHttpClient()
        if (key == null) return RateLimitedHttpClient(client, limiter, policy, backoff, cost)
        return RateLimitedHttpClient(client, limiter, policy, backoff, cost, key)
    }

    private fun backoff(
        maxWait: Duration? = null,
        maxRetries: Int? = null,
    ) = Backoff(Duration.ofMillis(1), Duration.ofMillis(1), maxWait, maxRetries)

    private fun request(
        server: Server,
        method: String = "GET",
        body: String? = null,
    ) = HttpRequest
        .newBuilder(server.uri)
        .method(method, body?.let { BodyPublishers.ofString(it) } ?: BodyPublishers.noBody())

    private fun HttpClient.status(request: HttpRequest.Builder) = send(request.build(), BodyHandlers.ofString()).statusCode()

    private val second: Duration = Duration.ofSeconds(1)

    @Test
    fun `a response with retry-after is retried after that time`() {
        for (asynchronous in listOf(false, true)) {
            val server = serve(429 to mapOf("Retry-After" to "1"))
            val request = request(server, "POST", "sent again")
            val client = client()
            val status =
                if (asynchronous) {
                    client.sendAsync(request.build(), BodyHandlers.ofInputStream()).get().statusCode()
                } else {
                    client.status(request)
                }
            assertEquals(200, status)
            assertEquals(listOf("POST sent again", "POST sent again"), server.seen)
            assertTrue(server.between() >= second)
        }
    }

    @Test
    fun `other requests of the host are held back, and those of other hosts are not`() {
        val (server, other) = serve(503 to mapOf("Retry-After" to "1")) to serve()
        val client = client(backoff = backoff(maxRetries = 0))
        assertEquals(listOf(503, 200, 200), listOf(server, other, server).map { client.status(request(it)) })
        assertTrue(server.between() >= second && other.times[0] < server.times[1])
    }

    @Test
    fun `fields with nothing left hold back the next request`() {
        val server = serve(200 to mapOf("RateLimit" to "\"a\";r=0;t=1"))
        val client = client()
        assertEquals(listOf(200, 200), List(2) { client.status(request(server)) })
        assertTrue(server.between() >= second)
    }

    @Test
    fun `retries depend on the method and are bounded`() {
        val now = 503 to mapOf("Retry-After" to "0")
        val server = serve(now, now)
        val client = client(backoff = backoff(maxRetries = 2))
        assertEquals(503, client.status(request(server, "POST", "x")))
        assertEquals(200, client.status(request(server, "PUT", "x")))
        assertEquals(listOf("POST x", "PUT x", "PUT x"), server.seen)
        val busy = serve(*Array(9) { 429 to emptyMap() })
        assertEquals(429, client.status(request(busy)))
        assertEquals(3, busy.seen.size)
    }

    @Test
    fun `a wait that does not fit returns the response and refuses the next request`() {
        val ten = Duration.ofSeconds(10)
        for (isByTimeout in listOf(false, true)) {
            val server = serve(429 to mapOf("Retry-After" to "60"))
            val client = if (isByTimeout) client() else client(backoff = backoff(ten))
            val request = request(server).apply { if (isByTimeout) timeout(ten) }
            assertEquals(429, client.status(request))
            val refused = assertThrows(ThrottledException::class.java) { client.status(request) }
            assertTrue(refused.message!!.startsWith("the server asked for a wait of 60 s with status 429: "), refused.message)
            assertTrue(refused.retryAfter!! > ten && refused.retryAfter!! <= Duration.ofMinutes(1))
            assertEquals(1, server.seen.size)
        }
    }

    @Test
    fun `the limiter paces requests, and refuses those that it admits too late`() {
        val server = serve()
        val paced = client("2/s token_bucket burst=1") { "shared" }
        val start = System.nanoTime()
        repeat(3) { assertEquals(200, paced.status(request(server))) }
        // The bucket counts by the wall clock.
        assertTrue(System.nanoTime() - start >= 990_000_000)
        val late = client("1/hour", backoff(Duration.ofSeconds(5)))
        assertEquals(200, late.status(request(server)))
        assertThrows(ThrottledException::class.java) { late.status(request(server)) }
        val never = client("1/hour", cost = 2)
        assertNull(assertThrows(ThrottledException::class.java) { never.status(request(server)) }.retryAfter)
        assertThrows(PolylimitException.InvalidArgument::class.java) { client("unknown").status(request(server)) }
        assertEquals(4, server.seen.size)
    }

    @Test
    fun `a cancelled request leaves the queue`() {
        val server = serve()
        val client = client("1/hour", backoff(Duration.ofDays(1))) { "k" }
        assertEquals(200, client.status(request(server)))
        val waiting = client.sendAsync(request(server).build(), BodyHandlers.ofString())
        Thread.sleep(50)
        assertTrue(waiting.cancel(true))
        assertThrows(CancellationException::class.java) { waiting.join() }
        limiter.reset("k", "1/hour")
        assertEquals(200, client.status(request(server)))
        assertEquals(listOf("GET", "GET"), server.seen)
        val refused = client("unknown").sendAsync(request(server).build(), BodyHandlers.ofString())
        val cause = assertThrows(ExecutionException::class.java) { refused.get() }.cause
        assertTrue(cause is PolylimitException.InvalidArgument, "$cause")
    }

    @Test
    fun `the key is the host without the port of the scheme`() {
        for ((uri, key) in mapOf(
            "http://API.example.com/a" to "api.example.com",
            "http://api.example.com:80" to "api.example.com",
            "https://api.example.com:443" to "api.example.com",
            "https://api.example.com:80/" to "api.example.com:80",
            "http://[2001:DB8::1]:8080/" to "[2001:db8::1]:8080",
        )) {
            assertEquals(key, RateLimitedHttpClient.hostOf(URI(uri)))
        }
    }

    private val cases: JsonNode = ObjectMapper().readTree(File("../../../tests/conformance/server_wait.json"))

    private fun JsonNode.us(name: String): Duration? = get(name)?.takeUnless { it.isNull }?.let { durationOf(it.asLong()) }

    private fun backoff(settings: JsonNode) =
        Backoff(settings.us("base_us"), settings.us("cap_us"), settings.us("max_wait_us"), settings["max_retries"]?.asInt())

    @Test
    fun `waits of servers agree with the cases`() {
        for (case in cases["server_wait"]) {
            val headers =
                mapOf(
                    "Retry-After" to listOfNotNull(case["retry_after"]?.asText()),
                    "RateLimit" to case["rate_limit"]?.map { it.asText() }.orEmpty(),
                )
            val wait = serverWait(headers, case["now_us"].asLong())
            assertEquals(case.us("wait_us"), wait, case["name"].asText())
        }
    }

    @Test
    fun `milliseconds and the date of the response count`() {
        val (date, later) = listOf("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:39 GMT")
        val exact = mapOf("retry-after-ms" to listOf("120"), "retry-after" to listOf("1"))
        assertEquals(Duration.ofMillis(120), serverWait(exact))
        assertEquals(Duration.ofSeconds(2), serverWait(mapOf("date" to listOf(date), "retry-after" to listOf(later))))
    }

    @Test
    fun `backoffs agree with the cases`() {
        for (case in cases["backoff"]) {
            val wait = backoff(case["settings"]).wait(case["retry"].asInt(), case.us("server_wait_us"))
            if (case["wait_us"].isNull) {
                assertNull(wait, case["name"].asText())
            } else {
                val (least, most) = case["wait_us"].map { it.asLong() }
                assertTrue(microsecondsOf(wait!!) in least..most, "${case["name"]}: $wait")
            }
        }
        for (case in cases["refused"]) {
            val refused = assertThrows(PolylimitException.InvalidArgument::class.java) { backoff(case["settings"]) }
            assertEquals(case["message"].asText(), refused.message)
        }
    }
}
