package readme

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import java.nio.file.Files
import java.nio.file.Path

/** A page of documentation with examples in it. */
internal class Page(
    private val path: String,
) {
    /** Fails unless all examples of the page stand word for word in a source of their language, which runs them. */
    fun isMadeOf(vararg sources: Pair<String, String>) {
        val statements = sources.groupBy({ it.first }) { statements(Path.of(it.second)) }.mapValues { it.value.joinToString("") }
        val page = Files.readString(Path.of(path))
        val examples = Regex("^```(\\w+)\n(.*?)^```$", setOf(RegexOption.MULTILINE, RegexOption.DOT_MATCHES_ALL)).findAll(page)
        for ((_, language, example) in examples.map { it.groupValues }.filter { it[1] !in ELSEWHERE }) {
            val lines = example.replace("\"redis://localhost\"", "redis").lines().map(String::trim).filter(String::isNotEmpty)
            val (imports, code) = lines.partition { it.startsWith("import ") }
            val source = statements.getValue(language)
            for (line in imports) assertTrue(source.contains("\n$line\n"), "$language does not say: $line")
            assertTrue(source.contains("\n${code.joinToString("\n")}\n"), "$language does not say:\n$example")
        }
        assertEquals(page.lines().count { it.startsWith("```") }, 2 * examples.count())
    }

    private companion object {
        /** Commands of a shell are checked with those of all pages, and properties with Spring Boot. */
        val ELSEWHERE = setOf("sh", "properties")
    }

    private fun statements(source: Path): String =
        Files.readAllLines(source).map(String::trim).filter(String::isNotEmpty).joinToString("\n", "\n", "\n")
}
