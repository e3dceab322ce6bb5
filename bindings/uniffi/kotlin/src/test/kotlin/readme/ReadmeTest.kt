package readme

import io.grpc.ServerServiceDefinition
import jakarta.servlet.Filter
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.springframework.web.servlet.config.annotation.InterceptorRegistry
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer
import polylimit.Credentials
import polylimit.Decision
import polylimit.Limiter
import polylimit.Outcome
import polylimit.OwnRedis
import polylimit.RequestAttributes
import polylimit.RequestDecision
import polylimit.Settings
import polylimit.Usage
import polylimit.headerFields
import polylimit.http.KeyPart
import polylimit.problemOf
import polylimit.servlet.RateLimitFilter
import polylimit.servlet.RateLimitOptions
import polylimit.spring.RateLimitInterceptor
import java.time.Duration

/** The examples of the README, word for word: what runs here, and in [JavaReadme], is compared with it. */
class ReadmeTest {
    // The examples name it, and it stands here for the address in them.
    private val redis: String = System.getenv("POLYLIMIT_REDIS")

    @Test
    fun `the examples in Kotlin`() {
        val limiter = Limiter.of(mapOf("api" to "100/minute; 1000/hour"), redis)
        val decision = limiter.check("user:42") // waits on this thread
        if (!decision.allowed) println("again in ${decision.retryAfter}") // null is never
        assertTrue(decision.allowed)
        assertTrue(runBlocking { suspended(limiter) }.allowed)
        filtered(limiter)
        intercepted(limiter).addInterceptors(InterceptorRegistry())
        byHand(limiter)
        together()
        limiter.close()
        assertTrue(reserving()!!.found)
        telling().close()
        assertTrue(configured().allowed)
    }

    private fun configured(): RequestDecision {
        val document = """
            polylimit = 1
            policies.api.quotas = "100/minute"
            rules = [{ match = { path = "/v1/{*rest}" }, apply = [{ policy = "api", key = "{user,client}" }] }]
        """
        val configured = Limiter(Settings(document = document))
        val decided = configured.decide(RequestAttributes("GET", "/v1/items", "192.0.2.7", attributes = mapOf("user" to "alice")))
        println(decided.status ?: 200)
        configured.admin().setEntry("deny user mallory", mapOf("until" to "2027-01-01T00:00:00Z", "why" to "spam"))
        println(configured.admin().configuration?.version)
        configured.close()
        return decided
    }

    private fun reserving(): Usage? {
        val models = Limiter.of(mapOf("model" to "20 concurrent; 100000/minute token_bucket"), redis)
        val usage = models.reserve("tenant:7", cost = 4_000).use { reservation ->
            if (reservation.allowed) reservation.commit(spent = 1_200) else null
        }
        models.close()
        return usage
    }

    private fun together() {
        val models = Limiter.of(mapOf("tokens" to "10000/minute", "requests" to "60/minute"), redis)
        val together = RateLimitOptions(models)
            .policy("tokens", "requests")
            .cost("tokens") { it.getHeader("x-max-tokens")?.toLong() ?: 500 }
            .spent("tokens") { request, _ -> request.getAttribute("tokens") as Long? }
        RateLimitFilter(together)
        models.close()
    }

    private fun telling(): Limiter {
        val told = Limiter.of(mapOf("api" to "100/minute"), redis) { event ->
            println("${event.kind} ${event.reason} ${event.decisions}") // "started timeout 0", and later "ended timeout 340"
        }
        return told
    }

    private fun renewed(redis: String): Limiter {
        val renewed = Limiter.builder()
            .store(redis)
            .policy("api", "100/minute")
            .credentials { Credentials(token("limits"), "limits") } // token asks the cloud for one of this user
            .build()
        return renewed
    }

    private fun token(user: String) = "token-of-$user"

    private suspend fun suspended(limiter: Limiter): Decision {
        val decision = limiter.asynchronous.check("user:42", policy = "api", cost = 5)
        return decision
    }

    private fun filtered(limiter: Limiter): Filter {
        val filter = RateLimitFilter(RateLimitOptions(limiter).policy("api").key { it.getHeader("x-api-key") })
        return filter
    }

    private fun intercepted(limiter: Limiter): WebMvcConfigurer {
        val limits = object : WebMvcConfigurer {
            override fun addInterceptors(registry: InterceptorRegistry) {
                val options = RateLimitOptions(limiter).policy("100/minute").key(KeyPart.path("tenant"))
                registry.addInterceptor(RateLimitInterceptor(options)).addPathPatterns("/tenants/**")
            }
        }
        return limits
    }

    private fun byHand(limiter: Limiter) {
        val outcome = Outcome(limiter.policyFor("api"), limiter.check("user:43", policy = "api"))
        println(headerFields(outcome)["ratelimit-policy"]) // "api:1";q=100;w=60, "api:2";q=1000;w=3600
        println(problemOf(outcome)?.status ?: 200)
        assertEquals("\"api:1\";q=100;w=60, \"api:2\";q=1000;w=3600", headerFields(outcome)["ratelimit-policy"])
    }

    @Test
    fun `the example in Java`() = JavaReadme.run(redis)

    @Test
    fun `the example of gRPC`() =
        Limiter.of(mapOf("api" to "100/minute")).use { limiter ->
            assertEquals("shop.Shop", JavaGrpc.limited(ServerServiceDefinition.builder("shop.Shop").build(), limiter).serviceDescriptor.name)
        }

    @Test
    fun `the example of WebFlux`() = Limiter.of(mapOf("api" to "100/minute")).use { JavaWebFlux().limits(it) }.let(::assertNotNull)

    /** On a server that admits no connection without them. */
    @Test
    fun `the examples of credentials`() =
        OwnRedis().use { own ->
            own.command("acl", "setuser", "limits", "on", ">token-of-limits", "~*", "&*", "+@all")
            for (limiter in listOf(renewed(own.bareUrl), JavaReadme.renewed(own.bareUrl))) limiter.use { it.ready(Duration.ofMinutes(1)) }
        }

    @Test
    fun `the README has no other examples`() =
        Page("README.md").isMadeOf(
            "kotlin" to "src/test/kotlin/readme/ReadmeTest.kt",
            "kotlin" to "src/test/kotlin/readme/KtorReadmeTest.kt",
            "java" to "src/test/java/readme/JavaReadme.java",
            "java" to "src/test/java/readme/JavaWebFlux.java",
            "java" to "src/test/java/readme/JavaGrpc.java",
        )
}
