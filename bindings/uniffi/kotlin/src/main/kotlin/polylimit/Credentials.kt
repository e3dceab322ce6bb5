package polylimit

import java.util.function.Supplier

/** A password (1 to 16384 bytes), and the user that it belongs to; null is the default user. Its text form shows neither. */
public class Credentials
    @JvmOverloads
    constructor(
        internal val password: String,
        internal val username: String? = null,
    ) {
        override fun toString(): String = "Credentials(***)"
    }

/** Answers the calls of a limiter for credentials, on a thread of its own until the limiter is closed or collected. */
internal class CredentialsServer(
    private val calls: CredentialsCalls,
    private val give: Supplier<Credentials>,
) {
    fun start() {
        val thread = Thread(null, ::serve, "polylimit-credentials", 0, false)
        thread.isDaemon = true
        thread.contextClassLoader = CredentialsServer::class.java.classLoader
        thread.start()
    }

    private fun serve() {
        while (calls.waitForCall()) answer()
    }

    private fun answer() {
        runCatching {
            // Java may return null.
            val given: Credentials? = give.get()
            checkNotNull(given) { "it has returned null" }
            calls.give(given.password, given.username)
        }.onFailure { thrown ->
            runCatching { calls.fail(thrown.message ?: thrown.javaClass.name) }.onFailure { calls.fail("its message is no text") }
        }
    }
}

/** A native limiter with these settings and this function. */
internal fun openNative(
    settings: Settings,
    give: Supplier<Credentials>,
): NativeLimiter {
    val calls = CredentialsCalls()
    val native = NativeLimiter.withCredentials(settings, calls)
    CredentialsServer(calls, give).start()
    return native
}
