package polylimit.ktor

import io.ktor.server.application.ApplicationCall
import io.ktor.server.response.ApplicationResponse
import polylimit.Limiter
import polylimit.PolylimitException
import polylimit.http.Denial
import polylimit.http.LimitOptions
import java.util.function.Function

/**
 * The options of [RateLimitPlugin]. A `onDenied` of three arguments sets the status and the fields of a response without a body; the one
 * of two arguments makes the whole response, and may suspend.
 */
public class RateLimitOptions(
    limiter: Limiter,
) : LimitOptions<ApplicationCall, ApplicationResponse, RateLimitOptions>(limiter) {
    internal var denied: (suspend (Denial, ApplicationCall) -> Unit)? = null
    internal var user: Function<ApplicationCall, String?>? = null

    init {
        // Here, because the plugin cannot be loaded then.
        val isOld = runCatching { Class.forName("io.ktor.server.application.PipelineCall", false, javaClass.classLoader) }.isFailure
        if (isOld) throw PolylimitException.InvalidArgument("this Ktor is older than 3.0: supported are Ktor 3.0 and newer")
    }

    /** Answers a request that does not proceed (429, 503 or 400) in place of the problem document; the response has its status already. */
    public fun onDenied(onDenied: suspend (denial: Denial, call: ApplicationCall) -> Unit): RateLimitOptions = apply { denied = onDenied }

    /**
     * The authenticated user of a call, for `KeyPart.user()` and the attribute `user`, such as `principal<UserIdPrincipal>()?.name`; none by
     * default.
     */
    public fun user(user: Function<ApplicationCall, String?>): RateLimitOptions = apply { this.user = user }
}
