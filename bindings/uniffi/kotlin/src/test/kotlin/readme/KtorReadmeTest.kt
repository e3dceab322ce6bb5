package readme

import io.ktor.http.HttpStatusCode
import io.ktor.server.application.Application
import io.ktor.server.application.install
import io.ktor.server.auth.Authentication
import io.ktor.server.auth.UserIdPrincipal
import io.ktor.server.auth.authenticate
import io.ktor.server.auth.basic
import io.ktor.server.auth.principal
import io.ktor.server.response.respond
import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import polylimit.KtorServer
import polylimit.Limiter
import polylimit.http.KeyPart
import polylimit.ktor.RateLimitOptions
import polylimit.ktor.RateLimitPlugin

/** The example of the README for Ktor; [ReadmeTest] compares it. */
class KtorReadmeTest : KtorServer() {
    fun Application.shop(limiter: Limiter) {
        install(RateLimitPlugin(RateLimitOptions(limiter).policy("api").key(KeyPart.header("x-api-key"))))
        routing {
            authenticate {
                route("/tenants/{tenant}") {
                    val options = RateLimitOptions(limiter).policy("100/minute").user { it.principal<UserIdPrincipal>()?.name }
                    install(RateLimitPlugin(options.key(KeyPart.path("tenant"), KeyPart.user())))
                    get("/items") { call.respondText("items") }
                }
            }
        }
    }

    @Test
    fun `the example of Ktor`() =
        serve({
            install(Authentication) { basic { validate { UserIdPrincipal(it.name) } } }
            shop(Limiter.of(mapOf("api" to "1/hour")))
            routing { get("/free") { call.respond(HttpStatusCode.OK) } }
        }) {
            val answer = send("/tenants/a/items", "GET", "x-api-key" to "k", "Authorization" to "Basic YTpi")
            assertEquals(200, answer.statusCode())
            assertTrue("\"100|minute~" in answer.headers().firstValue("ratelimit").get())
            assertEquals(429, send("/free", "GET", "x-api-key" to "k").statusCode())
        }
}
