package polylimit

import java.time.Duration

/**
 * The options of a guard, for Java: in Kotlin, [GuardOptions] has them as named arguments. Made by `GuardOptions.builder()`. Each
 * method documents its default; a value that is not allowed is refused by [Limiter.guard].
 */
public class GuardOptionsBuilder internal constructor() {
    private var options = GuardOptions()

    private inline fun change(change: GuardOptions.() -> GuardOptions): GuardOptionsBuilder = apply { options = options.change() }

    /**
     * Policies by name, or quotas such as `100/minute`, all different, which are decided together: a request that one of them denies
     * spends nothing under any. By default the configuration of the limiter decides, and without one its only policy.
     */
    public fun policies(vararg policies: String): GuardOptionsBuilder = change { copy(policies = policies.toList()) }

    /** Whether each request brings its policies, in [GuardFacts.policies]; false by default. */
    public fun perRequest(perRequest: Boolean): GuardOptionsBuilder = change { copy(perRequest = perRequest) }

    /** The budget of quotas without a name, 1 to 256 bytes; one for the limiter by default. */
    public fun scope(scope: String): GuardOptionsBuilder = change { copy(scope = scope) }

    /** Whether quotas without a name have a budget for each [GuardFacts.route], where there is no scope; false by default. */
    public fun perRoute(perRoute: Boolean): GuardOptionsBuilder = change { copy(perRoute = perRoute) }

    /** The parts of the key: `address`, `user`, `header:NAME`, `cookie:NAME` and `path:NAME`; none by default. */
    public fun keyParts(vararg parts: String): GuardOptionsBuilder = change { copy(keyParts = parts.toList()) }

    /** How a request without a key counts: by its `address`, the default, `share` or `refuse`. */
    public fun missingKey(missingKey: String): GuardOptionsBuilder = change { copy(missingKey = missingKey) }

    /** The units that each request spends, 0 to 10^12; 1 by default. */
    public fun cost(units: Long): GuardOptionsBuilder = change { copy(cost = units) }

    /**
     * The units that each request spends under one of the [policies], 0 to 10^12; the [cost] for all by default. A cost that the policy can
     * never admit is refused.
     *
     * @param policy its name or its quotas, as [policies] has it.
     */
    public fun cost(
        policy: String,
        units: Long,
    ): GuardOptionsBuilder = change { copy(costs = costs + (policy to units)) }

    /** The [policies] for which each request brings its own units, in [GuardFacts.costs]; none by default. */
    public fun costsPerRequest(vararg policies: String): GuardOptionsBuilder = change { copy(costsPerRequest = policies.toList()) }

    /** Whether all policies are reserved until [GuardCheck.end]; by default those with a quota of concurrency are. */
    public fun reserved(reserved: Boolean): GuardOptionsBuilder = change { copy(reserved = reserved) }

    /** The [policies] that are reserved until [GuardCheck.end] where not all are, because it has what was spent under them. */
    public fun reservedPolicies(vararg policies: String): GuardOptionsBuilder = change { copy(reservedPolicies = policies.toList()) }

    /**
     * What a request has spent, as its response reports it, such as `usage:total`, `header:x-tokens` or
     * `3*usage:input + 15*usage:output`: requests are reserved until [GuardCheck.end], and the response is passed to
     * [GuardCheck.readHead] and [GuardCheck.readBody]. A response that reports nothing has spent the cost.
     */
    public fun spentBy(meter: String): GuardOptionsBuilder = change { copy(spentBy = meter) }

    /**
     * The same under one of the [policies].
     *
     * @param policy its name or its quotas, as [policies] has it.
     */
    public fun spentBy(
        policy: String,
        meter: String,
    ): GuardOptionsBuilder = change { copy(spentByPolicy = spentByPolicy + (policy to meter)) }

    /** How long a reservation lasts after its last renewal: 1 ms to 48 h; 30 seconds by default. */
    public fun ttl(ttl: Duration): GuardOptionsBuilder = change { copy(ttl = ttl) }

    /** How long reservations are renewed: one hour by default; zero never renews them. */
    public fun maxAge(maxAge: Duration): GuardOptionsBuilder = change { copy(maxAge = maxAge) }

    /**
     * How long a request that would be denied may be held, up to 60 s: until it would be admitted, if that is in time, and then it is decided
     * again. By default requests are not held. A leaky bucket holds a request until its turn.
     */
    public fun wait(wait: Duration): GuardOptionsBuilder = change { copy(wait = wait) }

    /** How many requests may be held at the same time, 1 to 1,000,000; 100 by default. A further one is denied at once. */
    public fun maxWaiting(maxWaiting: Int): GuardOptionsBuilder = change { copy(maxWaiting = maxWaiting) }

    /** Limits only requests of these methods, in any case; by default those of all. `GET` covers `HEAD`. */
    public fun methods(vararg methods: String): GuardOptionsBuilder = change { copy(methods = methods.toList()) }

    /** Whether `GET` among [methods] does not cover `HEAD`, and both have budgets of their own on a route; false by default. */
    public fun separateHead(separate: Boolean): GuardOptionsBuilder = change { copy(separateHead = separate) }

    /** Whether preflights count, by which browsers ask whether a page may send a request; false by default. */
    public fun countPreflights(count: Boolean): GuardOptionsBuilder = change { copy(countPreflights = count) }

    /** The origins whose pages may read denials, such as `https://app.example`, or only `*` for all; none by default. */
    public fun corsOrigins(vararg origins: String): GuardOptionsBuilder = change { copy(corsOrigins = origins.toList()) }

    /** Decides, spends and reports without ever denying; false by default. */
    public fun dryRun(dryRun: Boolean): GuardOptionsBuilder = change { copy(dryRun = dryRun) }

    /** The status of a request that is over its limit, 400 to 599; 429 by default. */
    public fun status(status: Int): GuardOptionsBuilder = change { copy(status = status) }

    /** The sentence in the body of a request that is over its limit; the wait by default. */
    public fun message(message: String): GuardOptionsBuilder = change { copy(message = message) }

    /** Whether an answer may have an outage, which [GuardCheck.overrule] concludes; false by default. */
    public fun hearsOutages(hears: Boolean): GuardOptionsBuilder = change { copy(hearsOutages = hears) }

    /** Which fields the response has, as in [headerFields]; `ietf seconds` by default. */
    public fun headers(headers: String): GuardOptionsBuilder = change { copy(headers = headers) }

    /** The proxies that may name the client's address; none by default. */
    public fun clientAddress(rules: ClientAddressRules): GuardOptionsBuilder = change { copy(clientAddress = rules) }

    /** The options, which later calls do not change. */
    public fun build(): GuardOptions = options
}
