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
                // Whoever asks after this is not further in, unless it goes on elsewhere.
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
                    spent(request)?.giveBack()
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
                request.asyncContext.addListener(Completed { finish(spending, request, response) })
            } else {
                finish(spending, request, response)
            }
        }

        /** Null when nobody could decide and the request is let through. */
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
            // Nothing was spent if one of them denied.
            val isSpent = new.isNotEmpty() && decisions.all(Decision::allowed)
            val spending = if (isSpent) spend(request, rateLimit, new.zip(made, ::Spent)) else null
            val isOverruled = isOverruled(request, rateLimit, decisions)
            // What is overruled tells the client nothing.
            val shown = rateLimit.outcomes.filter { it.decision.allowed || !isOverruled }
            var all = together(request, shown)
            if (!shown.all { it.decision.allowed }) all = givenBack(request, all)
            val said = respond(all, cost, options.headers, options.resetForm, request.getHeader("Accept"))
            for ((name, value) in said.fields) response.setHeader(name, value)
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

        /** Whether denials are let through: those that come from an outage. One by the store stands, with all beside it. */
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

        /** Gives back what the request has spent if its response does not count. */
        private fun finish(
            spending: Spending,
            request: HttpServletRequest,
            response: HttpServletResponse,
        ) {
            if (options.count?.test(request, response) == false) spending.refund()
        }

        /** The same for what failed, which is answered further out. */
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
            private const val SPENDING = "polylimit.spending"

            /** The peer of a Unix socket. */
            private const val THIS_HOST = "127.0.0.1"

            /** The names of the policies. Refuses what would limit nothing, or spend twice. */
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

            /** The outcomes with those of other filters on the same request; each policy has one, the newest. */
            private fun together(
                request: HttpServletRequest,
                outcomes: List<Outcome>,
            ): List<Outcome> {
                val before = (request.getAttribute(OUTCOMES) as? List<*>).orEmpty().filterIsInstance<Outcome>()
                val others = before.filter { one -> outcomes.none { it.policy.name == one.policy.name } }
                return (others + outcomes).also { request.setAttribute(OUTCOMES, it) }
            }

            /** The same after what was spent further out was given back, since the request is denied here. */
            private fun givenBack(
                request: HttpServletRequest,
                outcomes: List<Outcome>,
            ): List<Outcome> {
                val said = spent(request)?.giveBack().orEmpty()
                return outcomes.map { one -> said[one.decision]?.let { Outcome(one.policy, it) } ?: one }
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
