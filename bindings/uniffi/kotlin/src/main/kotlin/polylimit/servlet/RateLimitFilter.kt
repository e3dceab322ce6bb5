package polylimit.servlet

import jakarta.servlet.AsyncEvent
import jakarta.servlet.AsyncListener
import jakarta.servlet.Filter
import jakarta.servlet.FilterChain
import jakarta.servlet.ServletException
import jakarta.servlet.ServletRequest
import jakarta.servlet.ServletResponse
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import polylimit.GuardCheck
import polylimit.PolylimitException
import polylimit.http.Denial
import polylimit.http.RateLimit
import polylimit.http.RequestLimit
import polylimit.http.WrittenFields

/**
 * Limits the requests that pass through it, in any servlet container and in Spring Boot.
 *
 * The request has the decisions as the attribute [ATTRIBUTE], the response its fields; a request that does not proceed is
 * answered by a problem document or text: with 429, with 503 when the store could not be asked, with 400 when its key is
 * missing and required. Several filters on one request make one set of fields together, and charge the same policy and key
 * once; what one has spent is refunded when one further in denies. Mistakes in the options are refused when the filter is made.
 */
public class RateLimitFilter
    @Throws(PolylimitException::class)
    constructor(
        options: RateLimitOptions,
    ) : Filter {
        private val limit = RequestLimit(options, ServletReader)

        override fun doFilter(
            request: ServletRequest,
            response: ServletResponse,
            chain: FilterChain,
        ) {
            if (request !is HttpServletRequest || response !is HttpServletResponse) return chain.doFilter(request, response)
            val outer = request.getAttribute(CHECK) as? GuardCheck
            val answer =
                try {
                    limit.decide(request, outer)
                } catch (error: PolylimitException) {
                    throw ServletException(error)
                } ?: return chain.doFilter(request, response)
            val rateLimit = RateLimit(answer.check)
            request.setAttribute(ATTRIBUTE, rateLimit)
            write(answer.fields, request, response)
            answer.problem?.let { problem -> return answer.check.use { deny(Denial(rateLimit, problem), request, response) } }
            request.setAttribute(CHECK, answer.check)
            try {
                proceed(answer.check, request, response, chain)
            } finally {
                // Later filters are not nested in this one, unless the request continues asynchronously.
                if (!request.isAsyncStarted) {
                    request.setAttribute(CHECK, outer)
                    answer.check.close()
                }
            }
        }

        private fun proceed(
            check: GuardCheck,
            request: HttpServletRequest,
            response: HttpServletResponse,
            chain: FilterChain,
        ) {
            limit.handle({ chain.doFilter(request, response) }, onFailure = { check.use { finishFailed(it, request, response) } })
            if (!limit.changes(check)) return
            if (request.isAsyncStarted) {
                request.asyncContext.addListener(CompletionListener { finish(check, request, response) })
            } else {
                finish(check, request, response)
            }
        }

        /** The response is done, or its client has gone. */
        private fun finish(
            check: GuardCheck,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) = check.use {
            val fields = limit.finish(it, request, response)
            if (!response.isCommitted) write(fields, request, response)
            limit.end(it, request, response)
        }

        /** The same for a request whose handler failed, before the container sets the status. */
        private fun finishFailed(
            check: GuardCheck,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            // With a part of the response sent, its client has gone, or it ends there.
            if (response.isCommitted) return finish(check, request, response)
            val status = response.status
            response.status = HttpServletResponse.SC_INTERNAL_SERVER_ERROR
            try {
                write(limit.finish(check, request, response), request, response)
            } finally {
                response.status = status
            }
        }

        private fun deny(
            denial: Denial,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            val problem = denial.problem
            response.status = problem.status
            limit.onDenied?.let { return it.answer(denial, request, response) }
            for ((name, value) in problem.fields) response.addHeader(name, value)
            response.outputStream.write(problem.body.encodeToByteArray())
        }

        private fun write(
            fields: Map<String, String>,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            val written = request.getAttribute(FIELDS) as? WrittenFields ?: WrittenFields().also { request.setAttribute(FIELDS, it) }
            // Without a value the field is removed.
            written.replace(fields, response::getHeader, response::setHeader)
        }

        public companion object {
            /** The name of the request's attribute that holds its [RateLimit]. */
            public const val ATTRIBUTE: String = "polylimit.rateLimit"
            private const val CHECK = "polylimit.check"

            /** The name of the attribute with the fields that all filters of the request have written. */
            private const val FIELDS = "polylimit.fields"
        }
    }

/** Runs a function when an asynchronous request is complete. */
private class CompletionListener(
    private val run: () -> Unit,
) : AsyncListener {
    override fun onComplete(event: AsyncEvent) = run()

    override fun onTimeout(event: AsyncEvent) = Unit

    override fun onError(event: AsyncEvent) = Unit

    override fun onStartAsync(event: AsyncEvent) = event.asyncContext.addListener(this)
}
