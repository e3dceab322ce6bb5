package polylimit.servlet

import jakarta.servlet.ServletContext
import org.springframework.context.ApplicationContext
import org.springframework.http.server.PathContainer
import org.springframework.web.servlet.handler.AbstractHandlerMapping
import polylimit.http.RequestReader

/** What Spring's router ignores in paths, by the settings of an application. */
internal object SpringRouter {
    private const val CONTEXT = "org.springframework.web.context.WebApplicationContext.ROOT"
    private const val UNKNOWN = RequestReader.IGNORES_CASE or RequestReader.ACCEPTS_SUFFIX

    /** 0 without Spring, and everything where its settings cannot be read: counting too much is safer than not counting. */
    fun paths(context: ServletContext?): Int {
        val application = context?.getAttribute(CONTEXT) ?: return 0
        return try {
            Settings.paths(application)
        } catch (_: LinkageError) {
            UNKNOWN
        }
    }

    /** In a class of its own, because Spring may not be there. */
    private object Settings {
        fun paths(application: Any): Int {
            if (application !is ApplicationContext) return UNKNOWN
            val mappings = application.getBeansOfType(AbstractHandlerMapping::class.java, true, false).values
            return mappings.fold(0) { paths, mapping -> paths or pathsOf(mapping) }
        }

        private fun pathsOf(mapping: AbstractHandlerMapping): Int {
            val parser = mapping.patternParser
            if (parser != null) {
                val ignoresCase = parser.parse("/a").matches(PathContainer.parsePath("/A"))
                return if (ignoresCase) RequestReader.IGNORES_CASE else 0
            }
            // Matchers say what they match, and not by which settings.
            val ignoresCase = mapping.pathMatcher.match("/a", "/A")
            return (if (ignoresCase) RequestReader.IGNORES_CASE else 0) or (if (acceptsSuffix(mapping)) RequestReader.ACCEPTS_SUFFIX else 0)
        }

        /** Spring 7 has no such setting any more. */
        private fun acceptsSuffix(mapping: AbstractHandlerMapping): Boolean =
            listOf("useSuffixPatternMatch", "useRegisteredSuffixPatternMatch").any { setting ->
                val getter = mapping.javaClass.methods.firstOrNull { it.name == setting && it.parameterCount == 0 }
                getter?.invoke(mapping) == true
            }
    }
}
