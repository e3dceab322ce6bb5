package polylimit.http

import polylimit.ClientAddressRules
import polylimit.Decision
import polylimit.Guard
import polylimit.GuardCheck
import polylimit.GuardOptions
import polylimit.Limiter
import polylimit.Outcome
import polylimit.PolylimitException
import polylimit.Problem
import java.time.Duration
import java.util.function.BiFunction
import java.util.function.BiPredicate
import java.util.function.Function
import java.util.function.Predicate
import java.util.function.ToLongFunction

/** The decisions about a request so far. */
public class RateLimit internal constructor(
    private val check: GuardCheck,
) {
    /** Each policy with its newest decision, in order, as they are when this is first read. */
    public val outcomes: List<Outcome> by lazy(check::outcomes)

    /** The first denial, or else the decision that has the least left; null when there is none. */
    public val decision: Decision? by lazy {
        val decisions = check.decisions()
        decisions.firstOrNull { !it.allowed } ?: decisions.minByOrNull { it.remaining }
    }
}

/**
 * A request that does not proceed, and the default response. The response already has its header fields.
 *
 * @property rateLimit the decisions.
 * @property problem the response that is sent without `onDenied`.
 */
public class Denial(
    public val rateLimit: RateLimit,
    public val problem: Problem,
)

/**
 * A request that the store did not decide. The outage policy did in [rateLimit], or none could because of [error].
 *
 * @property request the request of the framework.
 * @property rateLimit the decisions of the outage policy; null when there is an error.
 * @property error why no decision could be made; null when the outage policy decided.
 */
public class OutageEvent<Q>(
    public val request: Q,
    public val rateLimit: RateLimit?,
    public val error: Exception?,
)

/** Answers a request that does not proceed. */
public fun interface DenialHandler<Q, R> {
    @Throws(java.io.IOException::class)
    public fun answer(
        denial: Denial,
        request: Q,
        response: R,
    )
}

/**
 * The options of a limit on the requests [Q] of a web framework with the responses [R]. Each setter documents its default, and returns
 * the options. A value that is not allowed is a `PolylimitException.InvalidArgument` when the limit is made.
 */
public abstract class LimitOptions<Q, R, S : LimitOptions<Q, R, S>>(
    private val limiter: Limiter,
) {
    private var native = GuardOptions()
    internal var skip: Predicate<Q>? = null
    internal var policyFunction: Function<Q, List<String>?>? = null
    internal var key: Function<Q, String?>? = null
    internal var pathParameters: Function<Q, Map<String, String>?>? = null
    internal var attributes: Function<Q, Map<String, String?>?>? = null
    internal var cost: ToLongFunction<Q>? = null
    internal var count: BiPredicate<Q, R>? = null
    internal var spent: BiFunction<Q, R, Long?>? = null
    private val costs = linkedMapOf<String, ToLongFunction<Q>>()
    private val spends = linkedMapOf<String, BiFunction<Q, R, Long?>>()
    internal var onDenied: DenialHandler<Q, R>? = null
    internal var onOutage: Function<OutageEvent<Q>, Boolean?>? = null
    internal val clientAddress: ClientAddressRules? get() = native.clientAddress
    internal val hasMeters: Boolean get() = native.spentBy != null || native.spentByPolicy.isNotEmpty()

    /** Whether a meter reads the body of responses, and not only their fields. */
    internal val readsBodies: Boolean
        get() = (native.spentByPolicy.values + listOfNotNull(native.spentBy)).any { "usage:" in it || "json:" in it }
    internal val hasMethods: Boolean get() = native.methods.isNotEmpty()

    internal val hasOrigins: Boolean get() = native.corsOrigins.isNotEmpty()

    internal fun guard() =
        limiter.guard(
            native.copy(
                perRequest = policyFunction != null,
                perRoute = true,
                hearsOutages = onOutage != null,
                costsPerRequest = costs.keys.toList(),
                reserved = spent != null,
                reservedPolicies = spends.keys.toList(),
            ),
        )

    /** The costs of a request under single policies. */
    internal fun costs(request: Q): Map<String, Long> = if (costs.isEmpty()) emptyMap() else costs.mapValues { it.value.applyAsLong(request) }

    /** Ends what a check holds, with what its request has spent. */
    internal fun end(
        check: GuardCheck,
        request: Q,
        response: R,
    ) {
        val spentUnderOthers = spent?.apply(request, response)
        if (spends.isEmpty()) return check.end(spentUnderOthers)
        val others = native.policies.orEmpty().associateWith { spentUnderOthers }
        check.end(others + spends.mapValues { it.value.apply(request, response) })
    }

    /** Refuses what the configuration of the limiter says, and attributes where there is none. */
    internal fun checkBeside(guard: Guard) {
        val others = mapOf("key" to (key != null || native.keyParts.isNotEmpty()), "cost" to (cost != null || native.cost != null))
        val other = (others + ("scope" to (native.scope != null))).entries.firstOrNull { it.value }?.key
        if (guard.isByConfiguration && other != null) {
            val advice = "the configuration of the limiter decides: leave it out, or give a policy"
            throw PolylimitException.InvalidArgument("$other is given, and $advice")
        }
        if (!guard.isByConfiguration && attributes != null) {
            val advice = "the limiter has no configuration, or a policy is given: leave it out"
            throw PolylimitException.InvalidArgument("attributes is given, and $advice")
        }
    }

    @Suppress("UNCHECKED_CAST")
    private inline fun change(change: () -> Unit): S {
        change()
        return this as S
    }

    /**
     * Policies by name, or quotas such as `100/minute`, which are decided together: a request that one of them denies
     * spends nothing from any. One or more, none twice. By default the configuration of the limiter decides, and
     * without one its only policy.
     */
    public fun policy(vararg policies: String): S =
        change {
            native = native.copy(policies = policies.toList())
            policyFunction = null
        }

    /**
     * The policies of each request. A request for which the function returns an empty list or `null` is not limited. The texts
     * must come from the program and never from its users, because the limiter keeps each of them.
     */
    public fun policy(policies: Function<Q, List<String>?>): S =
        change {
            native = native.copy(policies = null)
            policyFunction = policies
        }

    /**
     * The budget of quotas without a name, shared by all limits of this scope: 1 to 256 bytes of text. Without a scope there is one for
     * each route where routes are known, and for each mount of a filter otherwise. A policy that has a name is shared in any case.
     */
    public fun scope(scope: String): S = change { native = native.copy(scope = scope) }

    /** The key of a request; the client's address by default. */
    public fun key(key: Function<Q, String?>): S =
        change {
            native = native.copy(keyParts = emptyList())
            this.key = key
        }

    /** The parts of the key of a request. */
    public fun key(vararg parts: KeyPart): S =
        change {
            native = native.copy(keyParts = parts.map(KeyPart::toString))
            key = null
        }

    /**
     * How a request counts whose key is `null` or lacks a part: by its client's `address`, the default; `share`, with all
     * others that have no key; or `refuse`, not at all, and it is answered by 400.
     */
    public fun missingKey(missingKey: String): S = change { native = native.copy(missingKey = missingKey) }

    /**
     * The path parameters of a request, for [KeyPart.path]. By default those of the framework, if it has some.
     */
    public fun pathParameters(parameters: Function<Q, Map<String, String>?>): S =
        change { pathParameters = parameters }

    /**
     * What the application knows of a request, by names, for a limiter whose configuration decides: it does where it has one, and no
     * policy is given. `user` is the authenticated user, unless the function says otherwise. A value of null is that of an attribute
     * which the request does not have.
     */
    public fun attributes(attributes: Function<Q, Map<String, String?>?>): S = change { this.attributes = attributes }

    /** The units that each request spends, 0 to 10^12; 1 by default. */
    public fun cost(units: Long): S =
        change {
            native = native.copy(cost = units)
            cost = null
        }

    /** The units that a request spends. */
    public fun cost(cost: ToLongFunction<Q>): S = change { this.cost = cost }

    /**
     * The units that each request spends under one of several policies, 0 to 10^12; the others have the [cost] for all. A cost that the
     * policy can never admit is refused when the limit is made, and so is one for a policy that is not in the list.
     *
     * @param policy its name or its quotas, as [policy] has it.
     */
    public fun cost(
        policy: String,
        units: Long,
    ): S =
        change {
            native = native.copy(costs = native.costs + (policy to units))
            costs -= policy
        }

    /**
     * The units that a request spends under one of several policies, such as its tokens; the others have the [cost] for all.
     *
     * @param policy its name or its quotas, as [policy] has it.
     */
    public fun cost(
        policy: String,
        cost: ToLongFunction<Q>,
    ): S =
        change {
            native = native.copy(costs = native.costs - policy)
            costs[policy] = cost
        }

    /**
     * Which requests count, by their response; all by default. The cost of a request is spent
     * before it is handled, and refunded when its response does not count. If the handler throws, the response
     * has the status 500 meanwhile, unless it was sent before. The fields
     * then show what is left after the refund, unless the response is committed by then: flushed, larger than its buffer, or
     * answered by `sendError`.
     */
    public fun count(count: BiPredicate<Q, R>): S = change { this.count = count }

    /**
     * What a request has spent, in units from 0 to 10^12, by its response: asked when the response is done or its client has gone, and not
     * for a handler that failed. Null is the cost. With this function, the cost is reserved until then and not checked, as it is under
     * policies with a quota of concurrency in any case.
     */
    public fun spent(spent: BiFunction<Q, R, Long?>): S = change { this.spent = spent }

    /**
     * What a request has spent under one of several policies, in units from 0 to 10^12; null is its cost. Only this policy is reserved then,
     * next to those with quotas of concurrency; the others have the [spent] for all, where there is one.
     *
     * @param policy its name or its quotas, as [policy] has it.
     */
    public fun spent(
        policy: String,
        spent: BiFunction<Q, R, Long?>,
    ): S = change { spends[policy] = spent }

    /**
     * What a request has spent, as its response reports it, in place of a function: `usage:total` for the tokens of OpenAI's and
     * Anthropic's `usage`, `header:x-tokens`, `json:usage.total_tokens`, or a sum such as `3*usage:input + 15*usage:output`. The body is
     * read as it passes, and is not kept. A response that reports nothing has spent the cost.
     */
    public fun spentBy(meter: String): S = change { native = native.copy(spentBy = meter) }

    /**
     * The same under one of several policies.
     *
     * @param policy its name or its quotas, as [policy] has it.
     */
    public fun spentBy(
        policy: String,
        meter: String,
    ): S = change { native = native.copy(spentByPolicy = native.spentByPolicy + (policy to meter)) }

    /** How long a reservation lasts after its last renewal: 1 ms to 48 h; 30 seconds by default. */
    public fun ttl(ttl: Duration): S = change { native = native.copy(ttl = ttl) }

    /** How long the reservations of a request are renewed: one hour by default; zero never renews them. */
    public fun maxAge(maxAge: Duration): S = change { native = native.copy(maxAge = maxAge) }

    /**
     * How long a request that would be denied may be held, up to 60 s: until it would be admitted, if that is in time, and then it is decided
     * again. By default requests are not held. A leaky bucket holds a request until its turn. In a servlet the thread of the request waits;
     * elsewhere none does.
     */
    public fun wait(wait: Duration): S = change { native = native.copy(wait = wait) }

    /** How many requests may be held at the same time, 1 to 1,000,000; 100 by default. A further one is denied at once. */
    public fun maxWaiting(maxWaiting: Int): S = change { native = native.copy(maxWaiting = maxWaiting) }

    /** Requests that are let through without a decision. */
    public fun skip(skip: Predicate<Q>): S = change { this.skip = skip }

    /** Limits only requests of these methods; by default those of all. `GET` covers `HEAD`. */
    public fun methods(vararg methods: String): S = change { native = native.copy(methods = methods.toList()) }

    /** Whether `GET` among [methods] does not cover `HEAD`, and both have budgets of their own on a route; false by default. */
    public fun separateHead(separate: Boolean): S = change { native = native.copy(separateHead = separate) }

    /** Whether preflights count, by which browsers ask whether a page may send a request; false by default. */
    public fun countPreflights(count: Boolean): S = change { native = native.copy(countPreflights = count) }

    /**
     * The origins whose pages may read denials, such as `https://app.example`, or only `*` for all: a denial gets the fields for that,
     * unless it has `access-control-allow-origin` already. None by default.
     */
    public fun corsOrigins(vararg origins: String): S = change { native = native.copy(corsOrigins = origins.toList()) }

    /** Decides, spends and reports without ever denying. */
    public fun dryRun(dryRun: Boolean): S = change { native = native.copy(dryRun = dryRun) }

    /** The status of a request that is over its limit, 400 to 599; 429 by default. Responses because of an outage keep 503. */
    public fun status(status: Int): S = change { native = native.copy(status = status) }

    /** The sentence in the body of a request that is over its limit, in place of the wait. */
    public fun message(message: String): S = change { native = native.copy(message = message) }

    /** Answers a request that does not proceed (429, 503 or 400) in place of the problem document. */
    public fun onDenied(onDenied: DenialHandler<Q, R>): S = change { this.onDenied = onDenied }

    /**
     * Called for each request that the store did not decide: `true` admits the request, unless the store itself has denied it
     * under another policy; `false` denies it; `null` leaves it to the outage policy, and without one it is answered by 503.
     */
    public fun onOutage(onOutage: Function<OutageEvent<Q>, Boolean?>): S = change { this.onOutage = onOutage }

    /** Which fields the response has, as in [polylimit.headerFields]; `ietf seconds` by default. */
    public fun headers(headers: String): S = change { native = native.copy(headers = headers) }

    /** The proxies that may name the client's address; none by default. */
    public fun clientAddress(rules: ClientAddressRules): S = change { native = native.copy(clientAddress = rules) }
}
