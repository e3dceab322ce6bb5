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
import polylimit.ClientAddressRules
import polylimit.Decision
import polylimit.Outcome
import polylimit.PolylimitException
import polylimit.Problem
import polylimit.request
import polylimit.respond

/**
 * Limits the requests that pass through it, in any servlet container and in Spring Boot.
 *
 * The request has the decision as the attribute [ATTRIBUTE], the response its fields; a denied request is answered by a
 * problem document or text, with 429, or 503 when the store could not be asked. Several filters on one request make one
 * set of fields together.
 */
public class RateLimitFilter
    @Throws(PolylimitException::class)
    constructor(
        private val options: RateLimitOptions,
    ) : Filter {
        private val limiter = options.limiter
        private val policies = options.policies?.also(::refuseMistakes) ?: listOf(onlyPolicy())
        private val rules = options.clientAddress ?: ClientAddressRules(emptyList())

        init {
            // Refuses names that are not known as soon as they are given.
            respond(emptyList(), null, options.headers, options.resetForm, null)
        }

        private class Verdict(
            val key: String,
            val cost: Long?,
            val rateLimit: RateLimit,
            /** Why the request is denied; null when it is not. */
            val problem: Problem?,
        )

        override fun doFilter(
            request: ServletRequest,
            response: ServletResponse,
            chain: FilterChain,
        ) {
            if (request !is HttpServletRequest || response !is HttpServletResponse || options.skip?.test(request) == true) {
                return chain.doFilter(request, response)
            }
            val verdict = decide(request, response)
            if (verdict?.problem != null) return deny(Denial(verdict.rateLimit, verdict.problem), request, response)
            if (verdict == null || options.count == null) return chain.doFilter(request, response)
            try {
                chain.doFilter(request, response)
            } catch (failure: Throwable) {
                finishFailed(verdict, request, response)
                throw failure
            }
            if (request.isAsyncStarted) {
                request.asyncContext.addListener(Completed { finish(verdict, request, response) })
            } else {
                finish(verdict, request, response)
            }
        }

        /** Null when nobody could decide and the request is let through. */
        private fun decide(
            request: HttpServletRequest,
            response: HttpServletResponse,
        ): Verdict? {
            val key = options.key?.apply(request) ?: addressOf(request)
            val cost = options.cost?.applyAsLong(request)
            val decisions =
                try {
                    limiter.checkTogether(policies.map { request(key, it, cost) })
                } catch (error: PolylimitException) {
                    return undecided(request, error)
                }
            val rateLimit = RateLimit(policies.zip(decisions).mapNotNull(::outcome))
            request.setAttribute(ATTRIBUTE, rateLimit)
            val all = together(request, rateLimit.outcomes)
            val said = respond(all, cost, options.headers, options.resetForm, request.getHeader("Accept"))
            for ((name, value) in said.fields) response.setHeader(name, value)
            val isOutage = decisions.any(Decision::isOutage)
            val letThrough = isOutage && options.onOutage?.test(OutageEvent(request, rateLimit, null)) == true
            return Verdict(key, cost, rateLimit, if (letThrough) null else said.problem)
        }

        private fun outcome(decided: Pair<String, Decision>): Outcome? =
            limiter.policy(decided.first)?.let { Outcome(it, decided.second) }

        private fun undecided(
            request: HttpServletRequest,
            error: PolylimitException,
        ): Verdict? {
            val isOutage = error is PolylimitException.StoreUnavailable || error is PolylimitException.StoreFailed
            if (isOutage && options.onOutage?.test(OutageEvent(request, null, error)) == true) return null
            throw ServletException(error)
        }

        private fun deny(
            denial: Denial,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            val problem = denial.problem
            response.status = problem.status
            options.onDenied?.let { return it.answer(denial, request, response) }
            response.addHeader("Vary", "Accept")
            response.contentType = problem.contentType
            response.outputStream.write(problem.body.encodeToByteArray())
        }

        /**
         * Gives back what the request has spent if its response does not count: under every policy, also when it fails under
         * one of them.
         */
        private fun finish(
            verdict: Verdict,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            if (options.count?.test(request, response) != false) return
            val error = policies.mapNotNull { refund(verdict, it) }.firstOrNull() ?: return
            // The response is on its way: there is nobody else to tell.
            options.onOutage?.test(OutageEvent(request, verdict.rateLimit, error))
        }

        /** The same for what failed, which is answered further out. */
        private fun finishFailed(
            verdict: Verdict,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            if (response.isCommitted) return finish(verdict, request, response)
            val status = response.status
            response.status = HttpServletResponse.SC_INTERNAL_SERVER_ERROR
            finish(verdict, request, response)
            response.status = status
        }

        /** Why it fails, if it does. */
        private fun refund(
            verdict: Verdict,
            policy: String,
        ): PolylimitException? =
            try {
                limiter.refund(verdict.key, policy, verdict.cost)
                null
            } catch (error: PolylimitException) {
                error
            }

        private fun addressOf(request: HttpServletRequest): String {
            val lines = rules.header()?.let { request.getHeaders(it).toList() }.orEmpty()
            return rules.resolve(request.remoteAddr, lines)
        }

        private fun onlyPolicy(): String =
            limiter.policies.singleOrNull()?.name ?: throw PolylimitException.InvalidArgument(
                "policy is missing, and this limiter has ${limiter.policies.size}: name one, or quotas such as 100/minute",
            )

        public companion object {
            /** The name of the request's attribute that holds its [RateLimit]. */
            public const val ATTRIBUTE: String = "polylimit.rateLimit"
            private const val OUTCOMES = "polylimit.outcomes"

            /** Refuses what would limit nothing, or spend twice. */
            private fun refuseMistakes(policies: List<String>) {
                if (policies.isEmpty()) {
                    throw PolylimitException.InvalidArgument(
                        "policy is an empty list: allowed is a policy's name or quotas, or a list of at least one of them",
                    )
                }
                val twice = policies.groupingBy { it }.eachCount().entries.firstOrNull { it.value > 1 } ?: return
                throw PolylimitException.InvalidArgument("policy \"${twice.key}\" is given twice: once is enough")
            }

            /** The outcomes with those of other filters on the same request; each policy has one, the newest. */
            private fun together(
                request: HttpServletRequest,
                outcomes: List<Outcome>,
            ): List<Outcome> {
                val before = (request.getAttribute(OUTCOMES) as? List<*>).orEmpty().filterIsInstance<Outcome>()
                val others = before.filter { one -> outcomes.none { it.policy.name == one.policy.name } }
                return (others + outcomes).also { request.setAttribute(OUTCOMES, it) }
            }
        }
    }

/** Runs something when an asynchronous request is over. */
private class Completed(
    private val run: () -> Unit,
) : AsyncListener {
    override fun onComplete(event: AsyncEvent) = run()

    override fun onTimeout(event: AsyncEvent) = Unit

    override fun onError(event: AsyncEvent) = Unit

    override fun onStartAsync(event: AsyncEvent) = event.asyncContext.addListener(this)
}
