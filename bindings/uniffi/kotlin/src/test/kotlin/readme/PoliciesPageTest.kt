package readme

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.Limiter
import polylimit.ServletServer
import polylimit.Settings
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import java.io.File

/** The example of docs/policies.md, word for word, with the server of the tests. */
class PoliciesPageTest : ServletServer() {
    private val redis = "${System.getenv("POLYLIMIT_REDIS")}&prefix=policies-page-${System.nanoTime()}"

    @Test
    fun `the example decides by the configuration`() {
        val limiter = Limiter(Settings(redis, options = mapOf("configuration" to "store")))
        val filter = RateLimitFilter(RateLimitOptions(limiter).attributes { mapOf("plan" to it.getHeader("x-plan")) })
        limiter.admin().publish("polylimit = 1\nlists.deny = ['plan none']")
        serveFilters(filter) { get ->
            assertEquals(403, get("/", listOf("X-Plan" to "none")).statusCode())
            assertEquals(200, get("/", listOf("X-Plan" to "gold")).statusCode())
            assertEquals(200, get("/", listOf()).statusCode())
        }
        limiter.close()
    }

    @Test
    fun `the page has no other example`() {
        val page = File("../../../docs/policies.md").readText()
        val (example) = Regex("^```kotlin\n(.*?)^```$", setOf(RegexOption.MULTILINE, RegexOption.DOT_MATCHES_ALL)).findAll(page).toList()
        val source = File("src/test/kotlin/readme/PoliciesPageTest.kt").readLines().map(String::trim)
        for (line in example.groupValues[1].lines().filter(String::isNotEmpty)) {
            assertTrue(line.replace("\"redis://localhost\"", "redis") in source, line)
        }
    }
}
