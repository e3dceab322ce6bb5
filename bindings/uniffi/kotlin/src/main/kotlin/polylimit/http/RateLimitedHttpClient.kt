package polylimit.http

import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.delay
import kotlinx.coroutines.future.await
import kotlinx.coroutines.future.future
import kotlinx.coroutines.runBlocking
import polylimit.Attempts
import polylimit.Backoff
import polylimit.Limiter
import polylimit.Request
import polylimit.THREADS
import polylimit.Throttle
import java.net.Authenticator
import java.net.CookieHandler
import java.net.ProxySelector
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.net.http.HttpTimeoutException
import java.time.Duration
import java.util.Locale
import java.util.Optional
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Executor
import java.util.function.Function
import javax.net.ssl.SSLContext
import javax.net.ssl.SSLParameters

/** A request was not sent, because it would have to wait for too long. [retryAfter] is null if the limiter never admits it. */
public class ThrottledException(
    message: String,
    public val retryAfter: Duration?,
) : HttpTimeoutException(message)

/**
 * An [HttpClient] that stays within a limit of its own and waits as servers demand; another client sends the requests. The rules
 * are those of every language: docs/clients.md.
 *
 * A request fails with [ThrottledException] when it would have to wait for more than `maxWait` of the backoff or its own timeout,
 * and with a [polylimit.PolylimitException] when the limiter cannot decide. Close the other client, not this one.
 *
 * @param policy the policy of the limiter that every attempt acquires from, or quotas; null for its only policy
 * @param key the key of a request; by default its host, with the port unless it is the scheme's own
 * @param cost the units of each attempt; 1 by default
 * @param backoff how often and how long a request may wait
 */
public class RateLimitedHttpClient
    @JvmOverloads
    constructor(
        private val client: HttpClient,
        private val limiter: Limiter,
        private val policy: String? = null,
        backoff: Backoff? = null,
        private val cost: Long? = null,
        private val key: Function<HttpRequest, String> = Function { hostOf(it.uri()) },
    ) : HttpClient() {
        private val throttle = Throttle(backoff)
        private val scope = CoroutineScope(SupervisorJob() + THREADS.asCoroutineDispatcher())

        private suspend fun <T> exchange(
            request: HttpRequest,
            send: () -> CompletableFuture<HttpResponse<T>>,
        ): HttpResponse<T> {
            val key = key.apply(request).encodeToByteArray()
            // An HttpRequest can be sent several times, with its body.
            val attempts = throttle.start(key, request.method(), true, request.timeout().orElse(null))
            return attempts.use { attempt(it, key, send) }
        }

        private suspend fun <T> attempt(
            attempts: Attempts,
            key: ByteArray,
            send: () -> CompletableFuture<HttpResponse<T>>,
        ): HttpResponse<T> {
            while (true) {
                val step = attempts.step()
                when (step.kind) {
                    "wait" -> delay(step.duration!!.toMillis() + 1)
                    "acquire" -> {
                        val acquired = limiter.asynchronous.acquire(Request(key, policy, cost), step.duration!!)
                        attempts.acquired(acquired.allowed, acquired.retryAfter)
                    }
                    "send" -> {
                        val response = send().await()
                        if (!attempts.responded(response.statusCode(), response.headers().map())) return response
                        (response.body() as? AutoCloseable)?.close()
                    }
                    else -> throw ThrottledException(step.message.orEmpty(), step.duration)
                }
            }
        }

        override fun <T> send(
            request: HttpRequest,
            handler: HttpResponse.BodyHandler<T>,
        ): HttpResponse<T> = runBlocking { exchange(request) { client.sendAsync(request, handler) } }

        override fun <T> sendAsync(
            request: HttpRequest,
            handler: HttpResponse.BodyHandler<T>,
        ): CompletableFuture<HttpResponse<T>> = scope.future { exchange(request) { client.sendAsync(request, handler) } }

        override fun <T> sendAsync(
            request: HttpRequest,
            handler: HttpResponse.BodyHandler<T>,
            pushed: HttpResponse.PushPromiseHandler<T>?,
        ): CompletableFuture<HttpResponse<T>> = scope.future { exchange(request) { client.sendAsync(request, handler, pushed) } }

        override fun cookieHandler(): Optional<CookieHandler> = client.cookieHandler()

        override fun connectTimeout(): Optional<Duration> = client.connectTimeout()

        override fun followRedirects(): Redirect = client.followRedirects()

        override fun proxy(): Optional<ProxySelector> = client.proxy()

        override fun sslContext(): SSLContext = client.sslContext()

        override fun sslParameters(): SSLParameters = client.sslParameters()

        override fun authenticator(): Optional<Authenticator> = client.authenticator()

        override fun version(): Version = client.version()

        override fun executor(): Optional<Executor> = client.executor()

        internal companion object {
            internal fun hostOf(uri: URI): String {
                val host = uri.host.lowercase(Locale.ROOT)
                val own = if (uri.scheme.equals("https", ignoreCase = true)) 443 else 80
                return if (uri.port == -1 || uri.port == own) host else "$host:${uri.port}"
            }
        }
    }
