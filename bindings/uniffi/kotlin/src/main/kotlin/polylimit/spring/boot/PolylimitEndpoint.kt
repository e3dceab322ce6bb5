package polylimit.spring.boot

import org.springframework.boot.actuate.endpoint.annotation.Endpoint
import org.springframework.boot.actuate.endpoint.annotation.ReadOperation
import polylimit.Limiter
import polylimit.PolylimitException
import java.time.Duration

/** The endpoint `polylimit` of the actuator: whether the store answers, the policies, the counts of operations and the active document. */
@Endpoint(id = "polylimit")
public class PolylimitEndpoint(
    private val limiter: Limiter,
) {
    /** What the limiter knows. It waits for the store for a second at most, on the actuator's thread. */
    @ReadOperation
    public fun state(): Map<String, Any?> {
        val problem = storeProblem()
        return buildMap {
            put("status", if (problem == null) "UP" else "DOWN")
            problem?.let { put("problem", it) }
            put("policies", limiter.policies.associate { it.name to it.quotas })
            put("stats", limiter.stats)
            limiter.admin().configuration?.let { put("configuration", mapOf("version" to it.version, "digest" to it.digest)) }
        }
    }

    private fun storeProblem(): String? =
        try {
            limiter.ready(PATIENCE)
            null
        } catch (error: PolylimitException) {
            error.message
        }

    private companion object {
        val PATIENCE: Duration = Duration.ofSeconds(1)
    }
}
