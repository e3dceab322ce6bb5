package readme

import com.sun.net.httpserver.HttpServer
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.Backoff
import polylimit.Limiter
import polylimit.http.RateLimitedHttpClient
import java.io.ByteArrayOutputStream
import java.io.File
import java.io.PrintStream
import java.net.InetSocketAddress
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse.BodyHandlers
import java.time.Duration

/** The example of docs/clients.md, word for word, with a server of this process. */
class ClientsPageTest {
    private fun example(url: String) {
        val backoff = Backoff(maxWait = Duration.ofSeconds(30))
        val client = RateLimitedHttpClient(HttpClient.newHttpClient(), Limiter.of(emptyMap()), "10/s token_bucket", backoff)
        val request = HttpRequest.newBuilder(URI(url)).build()
        println(client.send(request, BodyHandlers.discarding()).statusCode())
    }

    @Test
    fun `the example runs`() {
        val server = HttpServer.create(InetSocketAddress("127.0.0.1", 0), 0)
        server.createContext("/") { exchange ->
            exchange.sendResponseHeaders(200, -1)
            exchange.close()
        }
        server.start()
        val (told, out) = ByteArrayOutputStream() to System.out
        System.setOut(PrintStream(told))
        try {
            example("http://127.0.0.1:${server.address.port}/")
        } finally {
            System.setOut(out)
            server.stop(0)
        }
        assertEquals("200", told.toString().trim())
    }

    @Test
    fun `the page has no other example`() {
        val page = File("../../../docs/clients.md").readText()
        val (example) = Regex("^```kotlin\n(.*?)^```$", setOf(RegexOption.MULTILINE, RegexOption.DOT_MATCHES_ALL)).findAll(page).toList()
        val source = File("src/test/kotlin/readme/ClientsPageTest.kt").readLines().map(String::trim)
        for (line in example.groupValues[1].lines().filter(String::isNotEmpty)) {
            assertTrue(line.replace("\"https://api.example.com/\"", "url") in source, line)
        }
    }
}
