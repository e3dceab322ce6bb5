@file:JvmName("Headers")

package polylimit

/**
 * The header fields of the response to a request that a program has decided itself: values by names in lower case. [Limiter.guard]
 * and the middlewares make them together with their decision.
 *
 * ```
 * val decision = limiter.check("user:42", "api")
 * headerFields(Outcome(limiter.policyFor("api"), decision)).forEach(response::setHeader)
 * ```
 *
 * @param headers words in any order, separated by spaces; those that are left out are `ietf` and `seconds`. `ietf`
 *   (`ratelimit-policy`, `ratelimit`), `legacy` (`x-ratelimit-*`), `both` or `none`; whether `x-ratelimit-reset` is in `seconds`
 *   from now or since the `epoch`; and other names of fields, such as `ratelimit=x-quota`, where an empty name turns a field off.
 *   A denial has `retry-after` in any case, unless the request can never be admitted.
 * @throws PolylimitException.InvalidArgument for `headers` that are not allowed, and for a policy or a decision that no limiter has made.
 */
@JvmName("fields")
@JvmOverloads
@Throws(PolylimitException::class)
public fun headerFields(
    outcome: Outcome,
    headers: String? = null,
): Map<String, String> = headerFields(listOf(outcome), headers)

/** As the other `headerFields`, of several policies that were applied to the request; their names differ. */
@JvmName("fields")
@JvmOverloads
@Throws(PolylimitException::class)
public fun headerFields(
    outcomes: List<Outcome>,
    headers: String? = null,
): Map<String, String> =
    CallBuffer.use { buffer ->
        buffer.begin(DirectCalls.FIELDS).putOutcomes(outcomes)
        buffer.putText(headers)
        buffer.perform(0)
        if (buffer.byte() == 0) throw buffer.error()
        buffer.fields()
    }

/**
 * The response to a request that a program has decided itself; null for one that was admitted. Its header fields besides those of the
 * problem are those of [headerFields].
 *
 * @param cost the units that the request asked for, 0 to 10^12; null is 1.
 * @param accept the request's `accept` field, by which the body is a problem document (RFC 9457) or text.
 * @throws PolylimitException.InvalidArgument for a negative cost, and for a policy or a decision that no limiter has made.
 */
@JvmOverloads
@Throws(PolylimitException::class)
public fun problemOf(
    outcome: Outcome,
    cost: Long? = null,
    accept: String? = null,
): Problem? = problemOf(listOf(outcome), cost, accept)

/** As the other `problemOf`, of several policies that were applied to the request; null when none denies it. */
@JvmOverloads
@Throws(PolylimitException::class)
public fun problemOf(
    outcomes: List<Outcome>,
    cost: Long? = null,
    accept: String? = null,
): Problem? =
    CallBuffer.use { buffer ->
        buffer.begin(DirectCalls.PROBLEM).putOutcomes(outcomes)
        buffer.put(cost != null).putLong(cost ?: 0).putText(accept)
        buffer.perform(0)
        if (buffer.byte() == 0) throw buffer.error()
        buffer.list(buffer::problem).firstOrNull()
    }

private fun CallBuffer.putOutcomes(outcomes: List<Outcome>) {
    putInt(outcomes.size)
    for ((policy, decision) in outcomes) {
        putText(policy.name).putText(policy.quotas)
        putDecision(decision)
    }
}
