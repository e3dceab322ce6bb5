package polylimit

import jakarta.servlet.FilterConfig
import jakarta.servlet.ServletContext
import jakarta.servlet.ServletException
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.http.KeyPart
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.lang.reflect.Proxy
import java.nio.file.Path

/** Requests that reach the same servlet count under the same name, and filters at different mounts share nothing. */
class ServletSpellingsTest : ServletServer() {
    private val plain = Limiter.of(emptyMap())

    private fun List<String>.field(name: String) = filter { it.startsWith("$name:", ignoreCase = true) }.map { it.substringAfter(": ") }

    private fun ruled(rule: String) =
        RateLimitFilter(
            RateLimitOptions(
                Limiter(
                    Settings(
                        document =
                            """
                            polylimit = 1
                            policies.p.quotas = "3/hour fixed_window"
                            rules = [{ match = { $rule }, apply = [{ policy = "p", key = "all" }] }]
                            """.trimIndent(),
                    ),
                ),
            ),
        )

    @Test
    fun `parameters of segments do not lead past a rule about a path`() {
        for (spelling in listOf("/login;a=1", "/login;jsessionid=9", "/login;", "/a;b/../login", "/login;a=%3B", "//login", "/%6cogin;x")) {
            val servlet = CountedLogin()
            serveRaw(servlet, "/login", listOf(ruled("path = \"/login\"") to "/*")) { send ->
                repeat(4) {
                    send("GET $spelling", emptyList())
                    send("GET /login", emptyList())
                }
            }
            assertEquals(3, servlet.runs, spelling)
        }
    }

    @Test
    fun `a rule about a path sees the context, and one about a route the servlet`() {
        for (rule in listOf("path = \"/shop/login\"", "route = \"/shop/login\"")) {
            val servlet = CountedLogin()
            serveRaw(servlet, "/login", listOf(ruled(rule) to "/*"), contextPath = "/shop") { send ->
                repeat(5) { send("GET /shop/login;a=1", emptyList()) }
            }
            assertEquals(3, servlet.runs, rule)
        }
    }

    @Test
    fun `a rest of the path is a parameter of the route, and a servlet for all else has no route`() {
        for ((path, route) in listOf("/files/*" to "/files/{*", "*.txt" to "/{*", "/" to "!")) {
            val servlet = CountedLogin()
            // A star at the end stands for all that begins so.
            serveRaw(servlet, path, listOf(ruled("route = \"$route\"") to "/*")) { send -> repeat(5) { send("GET /files/a.txt", emptyList()) } }
            assertEquals(3, servlet.runs, path)
        }
    }

    @Test
    fun `GET covers HEAD unless both are separate`() {
        val options = { RateLimitOptions(Limiter.of(emptyMap())).policy("3/hour fixed_window").methods("get") }
        for ((chosen, runs) in listOf(options() to 3, options().separateHead(true) to 8)) {
            val servlet = CountedLogin()
            serveRaw(servlet, "/login", listOf(RateLimitFilter(chosen) to "/*")) { send ->
                repeat(5) {
                    send("GET /login", emptyList())
                    send("HEAD /login", emptyList())
                }
            }
            assertEquals(runs, servlet.runs)
        }
    }

    @Test
    fun `a method that no client can send is refused`() {
        for (method in listOf("ge t", "", "GET,POST")) {
            val refused =
                assertThrows(PolylimitException.InvalidArgument::class.java) {
                    RateLimitFilter(RateLimitOptions(plain).policy("1/hour").methods(method))
                }
            assertTrue(refused.message.orEmpty().contains("method"), refused.message)
        }
    }

    @Test
    fun `preflights do not count, and a page of an allowed origin may read a denial`() {
        val preflight = listOf("Origin: https://app.example", "Access-Control-Request-Method: GET")
        val options = { RateLimitOptions(Limiter.of(emptyMap())).policy("2/hour fixed_window").corsOrigins("https://app.example") }
        serveRaw(CountedLogin(), "/login", listOf(RateLimitFilter(options()) to "/*")) { send ->
            repeat(5) { assertTrue(send("OPTIONS /login", preflight).first().contains(" 200 ")) }
            repeat(2) { assertTrue(send("GET /login", preflight.take(1)).first().contains(" 200 ")) }
            val denied = send("GET /login", preflight.take(1))
            assertTrue(denied.first().contains(" 429 "), denied.first())
            assertEquals(listOf("https://app.example"), denied.field("access-control-allow-origin"))
            assertTrue(denied.field("access-control-expose-headers").single().contains("retry-after"))
            assertTrue(denied.field("vary").joinToString().lowercase().contains("origin"))
            assertTrue(denied.field("vary").joinToString().lowercase().contains("accept"))
            assertEquals(emptyList<String>(), send("GET /login", listOf("Origin: https://other.example")).field("access-control-allow-origin"))
        }
        serveRaw(CountedLogin(), "/login", listOf(RateLimitFilter(options().countPreflights(true)) to "/*")) { send ->
            val statuses = List(3) { send("OPTIONS /login", preflight).first().split(' ')[1] }
            assertEquals(listOf("200", "200", "429"), statuses)
        }
    }

    @Test
    fun `filters with the same quotas at different mounts share nothing, and those at the same share`() {
        fun filter() = RateLimitFilter(RateLimitOptions(plain).policy("1/day fixed_window"))
        val filters = listOf(filter() to "/a/*", filter() to "/b/*", filter() to "/b/*")
        serveRaw(CountedLogin(), "/*", filters) { send ->
            for (path in listOf("/a/x", "/b/x")) {
                val answers = List(2) { send("GET $path", emptyList()) }
                assertEquals(listOf("200", "429"), answers.map { it.first().split(' ')[1] }, path)
                val policy = answers.first().field("ratelimit-policy").single()
                assertFalse(policy.contains("%2F") || policy.contains("^"), "clients do not see the mount: $policy")
            }
        }
        serveRaw(CountedLogin(), "/*", listOf(filter() to "/*"), contextPath = "/a") { send ->
            assertTrue(send("GET /a/x", emptyList()).first().contains(" 429 "), "the same mount in another server")
        }
    }

    @Test
    fun `an empty key is a missing one`() {
        val options = { RateLimitOptions(Limiter.of(emptyMap())).policy("1/hour").missingKey("refuse") }
        val all =
            listOf(
                options().key { "" } to "X: 1",
                options().key(KeyPart.header("X-Key")) to "X-Key:",
                options().key(KeyPart.cookie("session")) to "Cookie: session=",
            )
        for ((chosen, field) in all) {
            serveRaw(CountedLogin(), "/login", listOf(RateLimitFilter(chosen) to "/*")) { send ->
                assertTrue(send("GET /login", listOf(field)).first().contains(" 400 "), field)
            }
        }
    }

    @Test
    fun `a container with older servlets is refused by a sentence`() {
        fun <T> answering(type: Class<T>, answers: Map<String, Any>): T =
            type.cast(Proxy.newProxyInstance(type.classLoader, arrayOf(type)) { _, method, _ -> answers[method.name] })
        val context = answering(ServletContext::class.java, mapOf("getMajorVersion" to 5, "getMinorVersion" to 0))
        val config = answering(FilterConfig::class.java, mapOf("getServletContext" to context))
        val refused = assertThrows(ServletException::class.java) { RateLimitFilter(RateLimitOptions(plain).policy("1/hour")).init(config) }
        assertTrue(refused.message.orEmpty().contains("Jakarta Servlet 5.0: supported are 6.0"), refused.message)
    }

    @Test
    fun `without Jakarta's servlets the options are refused by a sentence`() {
        val classes = System.getProperty("java.class.path").split(':').filter { "servlet" !in it.substringAfterLast('/') }
        val java = Path.of(System.getProperty("java.home"), "bin", "java").toString()
        val child = ProcessBuilder(java, "-cp", classes.joinToString(":"), "polylimit.WithoutServlets").redirectErrorStream(true).start()
        val output = child.inputStream.readAllBytes().decodeToString()
        assertTrue(output.contains("Jakarta Servlet 6.0") && output.contains("none with javax.servlet"), output)
    }
}

/** A program that makes options where there are no servlets. */
object WithoutServlets {
    @JvmStatic
    fun main(arguments: Array<String>) {
        try {
            RateLimitOptions(Limiter.of(emptyMap()))
        } catch (refused: PolylimitException.InvalidArgument) {
            println(refused.message)
        }
    }
}
