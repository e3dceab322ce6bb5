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
 * set of fields together; what one has spent is given back when one further in denies or cannot decide. The same policy and
 * key are charged once a request, by the outermost filter of the same limiter. Mistakes in the options are refused when the
 * filter is made.
 */
public class RateLimitFilter
    @Throws(PolylimitException::class)
    constructor(
        private val options: RateLimitOptions,
    ) : Filter {
        private val limiter = options.limiter
        private val policies = policiesOf(options)
        private val rules = options.clientAddress ?: ClientAddressRules(emptyList())

        init {
            // Refuses names that are not known as soon as they are given.
            respond(emptyList(), null, options.headers, options.resetForm, null)
        }

        private class Verdict(
            val rateLimit: RateLimit,
            /** Why the request is denied; null when it is not. */
            val problem: Problem?,
            /** Null when nothing was spent. */
            val spending: Spending?,
        )

        override fun doFilter(
            request: ServletRequest,
            response: ServletResponse,
            chain: FilterChain,
        ) {
            if (request !is HttpServletRequest || response !is HttpServletResponse || options.skip?.test(request) == true) {
                return chain.doFilter(request, response)
            }
            val before = request.getAttribute(SPENDING)
            try {
                limit(request, response, chain)
            } finally {
                // Later filters are not nested in this one, unless the request continues asynchronously.
                if (!request.isAsyncStarted) request.setAttribute(SPENDING, before)
            }
        }

        private fun limit(
            request: HttpServletRequest,
            response: HttpServletResponse,
            chain: FilterChain,
        ) {
            val verdict =
                try {
                    decide(request, response)
                } catch (failure: Throwable) {
                    spent(request)?.refundAll()
                    throw failure
                }
            if (verdict?.problem != null) {
                return deny(Denial(verdict.rateLimit, verdict.problem), request, response)
            }
            val spending = verdict?.spending
            if (spending == null || options.count == null) return chain.doFilter(request, response)
            try {
                chain.doFilter(request, response)
            } catch (failure: Throwable) {
                try {
                    finishFailed(spending, request, response)
                } catch (other: Throwable) {
                    failure.addSuppressed(other)
                }
                throw failure
            }
            if (request.isAsyncStarted) {
                request.asyncContext.addListener(CompletionListener { finish(spending, request, response) })
            } else {
                finish(spending, request, response)
            }
        }

        /** Null when no decision could be made and the request is let through. */
        private fun decide(
            request: HttpServletRequest,
            response: HttpServletResponse,
        ): Verdict? {
            val key = options.key?.apply(request) ?: addressOf(request)
            val cost = options.cost?.applyAsLong(request)
            val requests = policies.map { request(key, it, cost) }
            // What was charged already, further out.
            val known = requests.map { spent(request)?.decision(limiter, it) }
            val new = requests.filterIndexed { at, _ -> known[at] == null }
            val made =
                try {
                    if (new.isEmpty()) emptyList() else limiter.checkTogether(new)
                } catch (error: PolylimitException) {
                    return undecided(request, error)
                }
            val rest = made.iterator()
            val decisions = known.map { it ?: rest.next() }
            val rateLimit = RateLimit(policies.zip(decisions).mapNotNull(::outcome))
            request.setAttribute(ATTRIBUTE, rateLimit)
            // A denied policy spends nothing under any.
            val isSpent = new.isNotEmpty() && decisions.all(Decision::allowed)
            val spending = if (isSpent) spend(request, rateLimit, new.zip(made, ::Spent)) else null
            val isOverruled = isOverruled(request, rateLimit, decisions)
            // Overruled denials are not shown to the client.
            val shown = rateLimit.outcomes.filter { it.decision.allowed || !isOverruled }
            var all = mergeOutcomes(request, shown)
            if (!shown.all { it.decision.allowed }) all = refundOuter(request, all)
            val said = respond(all, cost, options.headers, options.resetForm, request.getHeader("Accept"))
            for ((name, value) in said.fields) response.setHeader(name, value)
            request.setAttribute(FIELDS, said.fields.associate { it.name to it.value })
            return Verdict(rateLimit, said.problem, spending)
        }

        private fun spend(
            request: HttpServletRequest,
            rateLimit: RateLimit,
            spent: List<Spent>,
        ): Spending {
            val spending =
                Spending(limiter, spent, spent(request)) { options.onOutage?.test(OutageEvent(request, rateLimit, it)) }
            request.setAttribute(SPENDING, spending)
            return spending
        }

        /** Whether denials of the outage policy are let through. A denial of the store keeps all others in force, too. */
        private fun isOverruled(
            request: HttpServletRequest,
            rateLimit: RateLimit,
            decisions: List<Decision>,
        ): Boolean {
            if (decisions.none(Decision::isOutage)) return false
            val allows = options.onOutage?.test(OutageEvent(request, rateLimit, null)) == true
            return allows && decisions.all { it.allowed || it.isOutage }
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

        /** Refunds the units of the request if its response does not count. */
        private fun finish(
            spending: Spending,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            if (options.count?.test(request, response) != false) return
            val left = spending.refund()
            if (left.isNotEmpty() && !response.isCommitted) rewriteFields(request, response, left)
        }

        /** Rewrites the fields to tell what is left after a refund, unless the application has written others. */
        private fun rewriteFields(
            request: HttpServletRequest,
            response: HttpServletResponse,
            left: Map<Decision, Decision>,
        ) {
            val outcomes = mergeOutcomes(request, emptyList()).map { one -> left[one.decision]?.let { Outcome(one.policy, it) } ?: one }
            request.setAttribute(OUTCOMES, outcomes)
            val before = request.getAttribute(FIELDS) as? Map<*, *>
            val fields = respond(outcomes, null, options.headers, options.resetForm, null).fields
            for ((name, value) in fields) if (response.getHeader(name) == before?.get(name)) response.setHeader(name, value)
            request.setAttribute(FIELDS, fields.associate { it.name to it.value })
        }

        /** The same for a request whose handler failed, before the container sets the status. */
        private fun finishFailed(
            spending: Spending,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            if (response.isCommitted) return finish(spending, request, response)
            val status = response.status
            response.status = HttpServletResponse.SC_INTERNAL_SERVER_ERROR
            try {
                finish(spending, request, response)
            } finally {
                response.status = status
            }
        }

        private fun addressOf(request: HttpServletRequest): String {
            val lines = rules.header()?.let { request.getHeaders(it).toList() }.orEmpty()
            return rules.resolve(request.remoteAddr.orEmpty().ifEmpty { THIS_HOST }, lines)
        }

        public companion object {
            /** The name of the request's attribute that holds its [RateLimit]. */
            public const val ATTRIBUTE: String = "polylimit.rateLimit"
            private const val OUTCOMES = "polylimit.outcomes"

            /** The fields that the last filter has written, so that fields of the application are left alone. */
            private const val FIELDS = "polylimit.fields"
            private const val SPENDING = "polylimit.spending"

            /** The peer of a Unix socket. */
            private const val THIS_HOST = "127.0.0.1"

            /** The names of the policies. Refuses an empty list and duplicates. */
            private fun policiesOf(options: RateLimitOptions): List<String> {
                val texts = options.policies
                if (texts != null && texts.isEmpty()) {
                    throw PolylimitException.InvalidArgument(
                        "policy is an empty list: allowed is a policy's name or quotas, or a list of at least one of them",
                    )
                }
                val names = (texts ?: listOf(null)).map { options.limiter.policyFor(it, options.scope).name }
                val twice = names.indices.firstOrNull { names.indexOf(names[it]) < it } ?: return names
                throw PolylimitException.InvalidArgument("policy \"${texts?.get(twice)}\" is given twice: once is enough")
            }

            private fun spent(request: HttpServletRequest): Spending? = request.getAttribute(SPENDING) as? Spending

            /** The outcomes with those of other filters on the same request; the newest of each policy. */
            private fun mergeOutcomes(
                request: HttpServletRequest,
                outcomes: List<Outcome>,
            ): List<Outcome> {
                val before = (request.getAttribute(OUTCOMES) as? List<*>).orEmpty().filterIsInstance<Outcome>()
                val others = before.filter { one -> outcomes.none { it.policy.name == one.policy.name } }
                return (others + outcomes).also { request.setAttribute(OUTCOMES, it) }
            }

            /** Refunds the units of the outer filters, since the request is denied here, and returns the outcomes after that. */
            private fun refundOuter(
                request: HttpServletRequest,
                outcomes: List<Outcome>,
            ): List<Outcome> {
                val said = spent(request)?.refundAll().orEmpty()
                return outcomes.map { one -> said[one.decision]?.let { Outcome(one.policy, it) } ?: one }
            }
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
