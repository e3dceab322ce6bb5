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

/** What was decided about a request: its policies with their decisions, in order. */
public class RateLimit(
    public val outcomes: List<Outcome>,
) {
    /** The first denial, or else the decision that has the least left. */
    public val decision: Decision
        get() = (outcomes.firstOrNull { !it.decision.allowed } ?: outcomes.minBy { it.decision.remaining }).decision
}

/** A request that was denied, and what is answered unless told otherwise. The response has its fields already. */
public class Denial(
    public val rateLimit: RateLimit,
    public val problem: Problem,
)

/** A request that the store did not decide: [rateLimit] did in its place, or nobody could, for the reason in [error]. */
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

/** What is to be limited, and how. What is not set is as its setter says. */
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
     * spends nothing from any. One or more, none twice. The limiter's only policy unless told otherwise.
     */
    public fun policy(vararg policies: String): RateLimitOptions = apply { this.policies = policies.toList() }

    /**
     * Gives quotas without a name a budget of their own, shared by all filters of this scope: 1 to 256 bytes of text. Without
     * one, all that name the same quotas share theirs. A policy that has a name is shared in any case.
     */
    public fun scope(scope: String): RateLimitOptions = apply { this.scope = scope }

    /** Whom to count; the client's address unless told otherwise, and where it gives `null`. */
    public fun key(key: Function<HttpServletRequest, String?>): RateLimitOptions = apply { this.key = key }

    /** The units that a request spends; 1 unless told otherwise. */
    public fun cost(cost: ToLongFunction<HttpServletRequest>): RateLimitOptions = apply { this.cost = cost }

    /**
     * Which requests count, told from their response; every one unless told otherwise. What a request costs is reserved
     * before it is handled, and given back when its response does not count. Where what handles it throws, the response
     * has the status 500 meanwhile, unless it was sent before.
     */
    public fun count(count: BiPredicate<HttpServletRequest, HttpServletResponse>): RateLimitOptions = apply { this.count = count }

    /** Requests that are let through without a decision. */
    public fun skip(skip: Predicate<HttpServletRequest>): RateLimitOptions = apply { this.skip = skip }

    /** Answers a denied request in place of the problem document. */
    public fun onDenied(onDenied: DenialHandler): RateLimitOptions = apply { this.onDenied = onDenied }

    /**
     * Hears of each request that the store did not decide; `true` lets the request through, unless the store itself has
     * denied it under another policy. Otherwise what was decided in the store's place holds, and an error is thrown.
     */
    public fun onOutage(onOutage: Predicate<OutageEvent>): RateLimitOptions = apply { this.onOutage = onOutage }

    /** Which fields the response has: `ietf`, `legacy`, `both` or `none`. */
    public fun headers(style: String): RateLimitOptions = apply { headers = style }

    /** How `x-ratelimit-reset` tells a time: `seconds` or `epoch`. */
    public fun resetForm(form: String): RateLimitOptions = apply { resetForm = form }

    /** Whose word about the client's address is taken; nobody's unless told otherwise. */
    public fun clientAddress(rules: ClientAddressRules): RateLimitOptions = apply { clientAddress = rules }
}
