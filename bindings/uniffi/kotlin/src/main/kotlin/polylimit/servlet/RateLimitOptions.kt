package polylimit.servlet

import jakarta.servlet.http.HttpServletRequest
import jakarta.servlet.http.HttpServletResponse
import polylimit.ClientAddressRules
import polylimit.Decision
import polylimit.Limiter
import polylimit.Outcome
import polylimit.Problem
import java.util.function.BiPredicate
import java.util.function.Function
import java.util.function.Predicate
import java.util.function.ToLongFunction

/** The decisions about a request, with their policies, in order. */
public class RateLimit(
    public val outcomes: List<Outcome>,
) {
    /** The first denial, or else the decision that has the least left. */
    public val decision: Decision
        get() = (outcomes.firstOrNull { !it.decision.allowed } ?: outcomes.minBy { it.decision.remaining }).decision
}

/** A denied request, and the default response. The response already has its header fields. */
public class Denial(
    public val rateLimit: RateLimit,
    public val problem: Problem,
)

/** A request that the store did not decide. The outage policy did in [rateLimit], or none could because of [error]. */
public class OutageEvent(
    public val request: HttpServletRequest,
    public val rateLimit: RateLimit?,
    public val error: Exception?,
)

/** Answers a denied request. */
public fun interface DenialHandler {
    @Throws(java.io.IOException::class)
    public fun answer(
        denial: Denial,
        request: HttpServletRequest,
        response: HttpServletResponse,
    )
}

/** The options of the filter. Each setter documents its default. */
public class RateLimitOptions(
    internal val limiter: Limiter,
) {
    internal var policies: List<String>? = null
    internal var scope: String? = null
    internal var key: Function<HttpServletRequest, String?>? = null
    internal var cost: ToLongFunction<HttpServletRequest>? = null
    internal var count: BiPredicate<HttpServletRequest, HttpServletResponse>? = null
    internal var skip: Predicate<HttpServletRequest>? = null
    internal var onDenied: DenialHandler? = null
    internal var onOutage: Predicate<OutageEvent>? = null
    internal var headers: String? = null
    internal var resetForm: String? = null
    internal var clientAddress: ClientAddressRules? = null

    /**
     * Policies by name, or quotas such as `100/minute`, which are decided together: a request that one of them denies
     * spends nothing from any. One or more, none twice. The limiter's only policy by default.
     */
    public fun policy(vararg policies: String): RateLimitOptions = apply { this.policies = policies.toList() }

    /**
     * Gives quotas without a name states of their own, shared by all filters of this scope: 1 to 256 bytes of text. Without
     * one, all filters with the same quotas share theirs. A policy that has a name is shared in any case.
     */
    public fun scope(scope: String): RateLimitOptions = apply { this.scope = scope }

    /** The key of a request; the client's address by default, and where the function returns `null`. */
    public fun key(key: Function<HttpServletRequest, String?>): RateLimitOptions = apply { this.key = key }

    /** The units that a request spends; 1 by default. */
    public fun cost(cost: ToLongFunction<HttpServletRequest>): RateLimitOptions = apply { this.cost = cost }

    /**
     * Which requests count, by their response; all by default. The cost of a request is spent
     * before it is handled, and refunded when its response does not count. If the handler throws, the response
     * has the status 500 meanwhile, unless it was sent before. The fields
     * then tell what is left after the refund, unless the response is committed by then: flushed, larger than its buffer, or
     * answered by `sendError`.
     */
    public fun count(count: BiPredicate<HttpServletRequest, HttpServletResponse>): RateLimitOptions = apply { this.count = count }

    /** Requests that are let through without a decision. */
    public fun skip(skip: Predicate<HttpServletRequest>): RateLimitOptions = apply { this.skip = skip }

    /** Answers a denied request in place of the problem document. */
    public fun onDenied(onDenied: DenialHandler): RateLimitOptions = apply { this.onDenied = onDenied }

    /**
     * Called for each request that the store did not decide; `true` lets the request through, unless the store itself has
     * denied it under another policy. Otherwise the decision of the outage policy holds, and an error is thrown.
     */
    public fun onOutage(onOutage: Predicate<OutageEvent>): RateLimitOptions = apply { this.onOutage = onOutage }

    /** Which fields the response has: `ietf`, `legacy`, `both` or `none`. */
    public fun headers(style: String): RateLimitOptions = apply { headers = style }

    /** The form of `x-ratelimit-reset`: `seconds` or `epoch`. */
    public fun resetForm(form: String): RateLimitOptions = apply { resetForm = form }

    /** The proxies that may name the client's address; none by default. */
    public fun clientAddress(rules: ClientAddressRules): RateLimitOptions = apply { clientAddress = rules }
}
