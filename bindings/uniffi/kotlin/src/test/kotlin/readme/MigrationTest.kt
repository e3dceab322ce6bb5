package readme

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import polylimit.Limiter
import polylimit.Policy
import polylimit.PolylimitException
import polylimit.Settings
import java.io.ByteArrayOutputStream
import java.io.PrintStream

/** The examples of docs/migrate/from-bucket4j.md, word for word: what runs here, and in [JavaMigration], is compared with it. */
class MigrationTest {
    // The examples name it, and it stands here for the address in them.
    private val redis: String = System.getenv("POLYLIMIT_REDIS")

    @Test
    fun `the examples in Kotlin`() {
        val policies =
            listOf(
                Policy("api", "10/second token_bucket burst=50; 1000/hour token_bucket"),
                Policy("login", "5/15m sliding_log", outage = "deny"),
            )
        val limiter = Limiter(Settings(redis, policies, options = mapOf("prefix" to "shop")))
        assertEquals(49L, limiter.check("migration ${System.nanoTime()}", "api").remaining)
        limiter.close()
    }

    @Test
    fun `an option of bucket4j is answered with ours`() {
        val told = ByteArrayOutputStream()
        val out = System.out
        System.setOut(PrintStream(told))
        try {
            refused()
        } finally {
            System.setOut(out)
        }
        assertEquals("option \"capacity\" is not known: use policy, with quotas such as 100/minute", told.toString().trim())
    }

    private fun refused() {
        try {
            Limiter(Settings(options = mapOf("capacity" to "100")))
        } catch (refused: PolylimitException.InvalidArgument) {
            println(refused.message) // option "capacity" is not known: use policy, with quotas such as 100/minute
        }
    }

    @Test
    fun `the example in Java`() = JavaMigration.run(redis)

    @Test
    fun `the quotas of the table are what it says`() {
        val table = java.io.File("../../../docs/migrate/from-bucket4j.md").readText()
        val quotas = Regex("`([\\d_]+/[^`]*)`").findAll(table).map { it.groupValues[1] }.toList()
        for (quota in quotas) Limiter.of(mapOf("api" to quota)).close()
        assertEquals(true, quotas.size >= 6)
    }

    @Test
    fun `the page has no other examples`() =
        Page("../../../docs/migrate/from-bucket4j.md").isMadeOf(
            "kotlin" to "src/test/kotlin/readme/MigrationTest.kt",
            "java" to "src/test/java/readme/JavaMigration.java",
        )
}
