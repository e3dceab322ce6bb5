package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Test
import java.lang.reflect.Modifier
import java.time.Duration

/** The builder of a guard's options sets what the named arguments set. */
class GuardOptionsBuilderTest {
    @Test
    fun `each option has a method of the builder`() {
        val rules = ClientAddressRules(listOf("loopback"), "x-forwarded-for")
        val named =
            GuardOptions(
                policies = listOf("a", "b"),
                methods = listOf("GET"),
                separateHead = true,
                countPreflights = true,
                corsOrigins = listOf("*"),
                perRequest = true,
                scope = "scope",
                perRoute = true,
                keyParts = listOf("user"),
                missingKey = "refuse",
                cost = 2,
                costs = mapOf("a" to 3, "b" to 4),
                costsPerRequest = listOf("b"),
                headers = "both epoch",
                status = 420,
                message = "wait",
                dryRun = true,
                hearsOutages = true,
                clientAddress = rules,
                reserved = true,
                reservedPolicies = listOf("a"),
                spentBy = "usage:total",
                spentByPolicy = mapOf("b" to "header:x-spent"),
                ttl = Duration.ofSeconds(5),
                maxAge = Duration.ofMinutes(5),
                wait = Duration.ofMillis(200),
                maxWaiting = 7,
            )
        val defaults = GuardOptions()
        for (field in GuardOptions::class.java.declaredFields.filterNot { Modifier.isStatic(it.modifiers) }) {
            field.isAccessible = true
            assertNotEquals(field.get(defaults), field.get(named), "${field.name} is not among the options of this test")
        }
        val built =
            GuardOptions
                .builder()
                .policies("a", "b")
                .methods("GET")
                .separateHead(true)
                .countPreflights(true)
                .corsOrigins("*")
                .perRequest(true)
                .scope("scope")
                .perRoute(true)
                .keyParts("user")
                .missingKey("refuse")
                .cost(2)
                .cost("a", 3)
                .cost("b", 4)
                .costsPerRequest("b")
                .headers("both epoch")
                .status(420)
                .message("wait")
                .dryRun(true)
                .hearsOutages(true)
                .clientAddress(rules)
                .reserved(true)
                .reservedPolicies("a")
                .spentBy("usage:total")
                .spentBy("b", "header:x-spent")
                .ttl(Duration.ofSeconds(5))
                .maxAge(Duration.ofMinutes(5))
                .wait(Duration.ofMillis(200))
                .maxWaiting(7)
        assertEquals(named, built.build())
        assertEquals(defaults, GuardOptions.builder().build())
    }
}
