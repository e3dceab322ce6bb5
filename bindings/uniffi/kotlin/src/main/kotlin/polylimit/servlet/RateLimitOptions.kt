package polylimit.servlet

import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import polylimit.Limiter
import polylimit.PolylimitException
import polylimit.http.LimitOptions

/** The options of [RateLimitFilter], and of the interceptor for Spring. */
public class RateLimitOptions
    @Throws(PolylimitException::class)
    constructor(
        limiter: Limiter,
    ) : LimitOptions<HttpServletRequest, HttpServletResponse, RateLimitOptions>(limiter) {
        init {
            if (!hasServlets()) {
                throw PolylimitException.InvalidArgument(
                    "there is no jakarta.servlet.Filter: supported are containers with Jakarta Servlet 6.0 or newer, such as Tomcat 10.1, " +
                        "Jetty 12 and Spring Boot 3, and none with javax.servlet",
                )
            }
        }

        private fun hasServlets() =
            try {
                Class.forName("jakarta.servlet.Filter", false, RateLimitOptions::class.java.classLoader)
                true
            } catch (_: ClassNotFoundException) {
                false
            }
    }
