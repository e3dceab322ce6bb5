package polylimit.servlet

import jakarta.servlet.AsyncEvent
import jakarta.servlet.AsyncListener
import jakarta.servlet.ServletException
import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import polylimit.GuardCheck
import polylimit.PolylimitException
import polylimit.http.Denial
import polylimit.http.RateLimit
import polylimit.http.RequestLimit
import polylimit.http.WrittenFields

/** What the filter and the interceptor do with a request. */
internal class ServletLimit(
    options: RateLimitOptions,
    reader: ServletReader,
) {
    private val limit = RequestLimit(options, reader)

    /** A request that proceeds within a limit, until [leave]. */
    class Admitted(
        val check: GuardCheck,
        private val outer: Any?,
    ) {
        /** The response, where it is read as it is written. */
        var reading: ReadingResponse? = null

        /** Limits after this one are not nested in it. */
        fun leave(request: HttpServletRequest) {
            request.setAttribute(CHECK, outer)
            check.close()
        }
    }

    /** What becomes of a request. */
    sealed interface Decided {
        /** It proceeds without the limit. */
        data object NotLimited : Decided

        /** Its response is written. */
        data object Denied : Decided

        /** It proceeds. */
        class Proceeds(
            val admitted: Admitted,
        ) : Decided
    }

    fun decide(
        request: HttpServletRequest,
        response: HttpServletResponse,
    ): Decided {
        val outer = request.getAttribute(CHECK)
        val answer =
            try {
                limit.decide(request, outer as? GuardCheck)
            } catch (error: PolylimitException) {
                throw ServletException(error)
            } ?: return Decided.NotLimited
        val rateLimit = RateLimit(answer.check)
        request.setAttribute(RateLimitFilter.ATTRIBUTE, rateLimit)
        write(answer.fields, request, response)
        val problem = answer.problem
        if (problem != null) {
            answer.check.use { deny(Denial(rateLimit, problem), request, response) }
            return Decided.Denied
        }
        request.setAttribute(CHECK, answer.check)
        return Decided.Proceeds(Admitted(answer.check, outer))
    }

    /** The response that the handler of a request writes: one that is read where it may report what was spent. */
    fun responseOf(
        admitted: Admitted,
        response: HttpServletResponse,
    ): HttpServletResponse {
        if (!limit.readsResponse(admitted.check)) return response
        return ReadingResponse(response, admitted.check).also { admitted.reading = it }
    }

    /** Runs the handler of a request; see [RequestLimit.handle]. */
    inline fun handle(
        admitted: Admitted,
        request: HttpServletRequest,
        response: HttpServletResponse,
        handler: () -> Unit,
    ) = limit.handle(handler, onFailure = { admitted.check.use { finishFailed(admitted, request, response) } })

    /** Ends a check when its handler has returned or, for a request that continues asynchronously, when that is complete. */
    fun finishLater(
        admitted: Admitted,
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) {
        if (!limit.changes(admitted.check)) return
        if (request.isAsyncStarted) {
            request.asyncContext.addListener(CompletionListener { finish(admitted, request, response) })
        } else {
            finish(admitted, request, response)
        }
    }

    /** The response is done, or its client has gone. */
    private fun finish(
        admitted: Admitted,
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) = admitted.check.use {
        val fields = limit.finish(it, request, response)
        if (!response.isCommitted) write(fields, request, response)
        // An interceptor does not see the body.
        if (limit.readsResponse(it)) (admitted.reading ?: ReadingResponse(response, it)).begin()
        limit.end(it, request, response)
    }

    /** The same for a request whose handler failed, before the container sets the status. */
    fun finishFailed(
        admitted: Admitted,
        request: HttpServletRequest,
        response: HttpServletResponse,
    ) {
        // With a part of the response sent, its client has gone, or it ends there.
        if (response.isCommitted) return finish(admitted, request, response)
        val status = response.status
        response.status = HttpServletResponse.SC_INTERNAL_SERVER_ERROR
        try {
            write(limit.finish(admitted.check, request, response), request, response)
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
        if (response.getHeader(ALLOWED_ORIGIN) == null) {
            // Of `vary` and the names that pages may read there may be more.
            for ((name, value) in limit.corsFields(request)) response.addHeader(name, value)
        }
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

    private companion object {
        const val ALLOWED_ORIGIN = "Access-Control-Allow-Origin"

        /** The name of the attribute with the check of the innermost limit. */
        const val CHECK = "polylimit.check"

        /** The name of the attribute with the fields that all limits of the request have written. */
        const val FIELDS = "polylimit.fields"
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
