package polylimit

import com.fasterxml.jackson.databind.ObjectMapper
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import polylimit.spring.boot.PolylimitProperties
import java.io.File

/** What editors know of the properties of Spring Boot, and what the documentation lists. */
class SpringPropertiesTest {
    private fun names(
        type: Class<*>,
        prefix: String,
    ) = type.methods
        .filter { it.name.startsWith("set") && it.parameterCount == 1 }
        .map { prefix + it.name.removePrefix("set").replace(Regex("(?<=.)([A-Z])"), "-$1").lowercase() }

    private val properties = (names(PolylimitProperties::class.java, "polylimit.") + names(PolylimitProperties.Web::class.java, "polylimit.web.")).toSet()

    @Test
    fun `metadata has each property`() {
        val metadata = ObjectMapper().readTree(javaClass.getResource("/META-INF/spring-configuration-metadata.json"))
        assertEquals(properties, metadata["properties"].map { it["name"].asText() }.toSet())
    }

    @Test
    fun `page lists each property`() {
        val rows = File("README.md").readLines().filter { it.startsWith("| `polylimit.") }
        val listed = rows.flatMap { row -> Regex("`(polylimit\\.[a-z.-]+?)(?:\\.NAME)?`").findAll(row.split('|')[1]).map { it.groupValues[1] } }
        assertEquals(properties, listed.toSet())
    }
}
