package polylimit.ktor

import io.ktor.http.ContentType
import io.ktor.http.HttpHeaders
import io.ktor.http.HttpMethod
import io.ktor.http.HttpStatusCode
import io.ktor.http.content.ByteArrayContent
import io.ktor.http.content.OutgoingContent
import io.ktor.server.application.Application
import io.ktor.server.application.ApplicationCall
import io.ktor.server.application.ApplicationCallPipeline
import io.ktor.server.application.BaseRouteScopedPlugin
import io.ktor.server.application.PipelineCall
import io.ktor.server.application.call
import io.ktor.server.request.httpMethod
import io.ktor.server.response.ApplicationResponse
import io.ktor.server.response.respond
import io.ktor.server.routing.Route
import io.ktor.server.routing.application
import io.ktor.util.AttributeKey
import io.ktor.util.pipeline.PipelineContext
import io.ktor.util.pipeline.PipelinePhase
import kotlinx.coroutines.future.await
import polylimit.PolylimitException
import polylimit.http.Denial
import polylimit.http.RateLimit
import polylimit.http.RequestLimit
import java.util.concurrent.atomic.AtomicLong

/**
 * Limits requests in Ktor, and never blocks a thread: a call waits for the store without one.
 *
 * `install(RateLimitPlugin(options))` in an application limits all calls, after the plugins that are installed in front of handlers and
 * before the router. In a route it limits the calls of that route, after authentication: rules see the attribute `route` then, keys have
 * path parameters, and quotas without a name have a budget for each route.
 *
 * The decisions are the attribute [RATE_LIMIT] of the call. A policy with a quota of concurrency is reserved until the response is
 * written, or its client has gone.
 */
public class RateLimitPlugin
    @Throws(PolylimitException::class)
    constructor(
        private val options: RateLimitOptions,
    ) : BaseRouteScopedPlugin<Unit, RateLimitPlugin> {
        private val inFront = RequestLimit(options, CallReader(options, isOnHandler = false))
        private val inRoutes = RequestLimit(options, CallReader(options, isOnHandler = true))

        /** Each plugin has its own, so that there may be several. */
        override val key: AttributeKey<RateLimitPlugin> = AttributeKey("polylimit ${NUMBER.incrementAndGet()}")

        override fun install(
            pipeline: ApplicationCallPipeline,
            configure: Unit.() -> Unit,
        ): RateLimitPlugin {
            LimitedCall.follow(if (pipeline is Application) pipeline else (pipeline as Route).application)
            val limit = if (pipeline is Application) inFront else inRoutes
            pipeline.insertPhaseBefore(ApplicationCallPipeline.Call, LIMIT)
            pipeline.intercept(LIMIT) { decide(limit) }
            return this
        }

        private suspend fun PipelineContext<Unit, PipelineCall>.decide(limit: RequestLimit<ApplicationCall, ApplicationResponse>) {
            val limited = LimitedCall.of(call)
            val answer = limit.decideFuture(call, limited.innermost).await() ?: return
            val rateLimit = RateLimit(answer.check)
            call.attributes.put(RATE_LIMIT, rateLimit)
            limited.fields = answer.fields
            val problem = answer.problem
            if (problem == null) {
                val entered = limited.enter(limit, answer.check)
                try {
                    return proceed()
                } catch (failure: Throwable) {
                    entered.hasFailed = true
                    throw failure
                }
            }
            answer.check.use { deny(limit, Denial(rateLimit, problem)) }
            finish()
        }

        private suspend fun PipelineContext<Unit, PipelineCall>.deny(
            limit: RequestLimit<ApplicationCall, ApplicationResponse>,
            denial: Denial,
        ) {
            val (response, problem) = call.response to denial.problem
            val status = HttpStatusCode.fromValue(problem.status)
            response.status(status)
            if (response.headers[HttpHeaders.AccessControlAllowOrigin] == null) {
                for ((name, value) in limit.corsFields(call)) response.headers.append(name, value)
            }
            options.denied?.let { return it(denial, call) }
            limit.onDenied?.let {
                it.answer(denial, call, response)
                return call.respond(response.status() ?: status)
            }
            for ((name, value) in problem.fields) if (!isType(name)) response.headers.append(name, value)
            val type = problem.fields.entries.firstOrNull { isType(it.key) }?.let { ContentType.parse(it.value) }
            val body = ByteArrayContent(problem.body.encodeToByteArray(), type, status)
            // Ktor's engines would send the body.
            call.respond(if (call.request.httpMethod == HttpMethod.Head) WithoutBody(body) else body)
        }

        /** The field is a property of a content in Ktor. */
        private fun isType(field: String) = field.equals(HttpHeaders.ContentType, ignoreCase = true)

        private class WithoutBody(
            private val whole: OutgoingContent,
        ) : OutgoingContent.NoContent() {
            override val contentType: ContentType? get() = whole.contentType
            override val contentLength: Long? get() = whole.contentLength
            override val status: HttpStatusCode? get() = whole.status
        }

        public companion object {
            /** The key of a call's attribute that holds its [RateLimit]. */
            @JvmField
            public val RATE_LIMIT: AttributeKey<RateLimit> = AttributeKey("polylimit.rateLimit")
            private val NUMBER = AtomicLong()

            /** Right before handlers: after the plugins of an application, and in a route after authentication. */
            private val LIMIT = PipelinePhase("polylimit")
        }
    }
