package polylimit

import java.time.Duration
import java.time.Instant
import java.time.temporal.ChronoUnit

/**
 * What an application says about a request, so that a configuration finds the limits of it. What is left out is absent. Its text
 * form shows no value: they identify clients.
 *
 * @property method the method, such as `GET`.
 * @property path the path as the client sent it, with its escapes; a query after it is ignored.
 * @property peer the other end of the socket: an address, with or without a port, or any other text.
 * @property headers the lines of the headers, as names in any case and values, in their order.
 * @property attributes what the application knows of the request, such as `user` or `plan`, by names of letters, digits and `_`.
 * @property routerPaths what the router ignores in paths, unless the document declares it: the sum of 1 (case), 2 (parameters of segments such
 *   as `;a=b`) and 4 (a suffix such as `.json`).
 */
public data class RequestAttributes
    @JvmOverloads
    constructor(
        val method: String? = null,
        val path: String? = null,
        val peer: String? = null,
        val headers: List<Pair<String, String>> = emptyList(),
        val attributes: Map<String, String> = emptyMap(),
        val routerPaths: Int = 0,
    ) {
        override fun toString(): String = "RequestAttributes(headers=${headers.size}, attributes=${attributes.keys})"
    }

/**
 * A policy that the rules apply to a request. Its text form shows no key.
 *
 * @property policy the policy's name.
 * @property key the key under the policy.
 * @property cost the units that the request spends.
 * @property headroom percent of the capacity that is kept for others, 0 to 99.
 */
public class PolicyMatch internal constructor(
    public val policy: String,
    public val key: ByteArray,
    public val cost: Long,
    public val headroom: Int,
) {
    override fun equals(other: Any?): Boolean =
        other is PolicyMatch && policy == other.policy && key.contentEquals(other.key) && cost == other.cost &&
            headroom == other.headroom

    override fun hashCode(): Int = 31 * key.contentHashCode() + listOf(policy, cost, headroom).hashCode()

    override fun toString(): String = "PolicyMatch(policy=$policy, cost=$cost, headroom=$headroom)"
}

/**
 * The decision of one policy on a request.
 *
 * @property match the policy, and the key, cost and headroom under it.
 * @property decision the decision; a denied request may have decisions that admit it.
 * @property reservation the id of the reservation that was made under the policy, for [Limiter.commit] and [Limiter.cancel]; null where
 *   units were spent.
 */
public data class PolicyDecision(
    val match: PolicyMatch,
    val decision: Decision,
    val reservation: String?,
)

/**
 * The decision on a request by the configuration's lists, rules and policies.
 *
 * @property allowed whether the request may proceed.
 * @property cause why it was denied, or admitted without the store: see [Decision.cause].
 * @property status the HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429; null when allowed.
 * @property retryAfter how long until the request would be admitted, the longest over the denials: zero when it is allowed, and null for
 *   never.
 * @property decisions the decisions of the policies that the rules apply, in their order; none when a list or a missing key decides.
 */
public data class RequestDecision(
    val allowed: Boolean,
    val cause: String?,
    val status: Int?,
    val retryAfter: Duration?,
    val decisions: List<PolicyDecision>,
)

/**
 * Which configuration is active, and where it comes from.
 *
 * @property source `document` for one that the program gives, otherwise as the option `configuration` names it.
 * @property version raised with each change; 0 before the first configuration.
 * @property documentVersion which document of Redis is active, counted from 1: what [PublishOptions.expectedVersion] expects to
 *   replace; 0 where the document does not come from Redis.
 * @property digest SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first.
 * @property appliedAt when this version was applied, by this host's clock; null before the first.
 * @property age for how long the source has been unreachable; zero when it is reachable.
 * @property error why a newer configuration was not applied, or may not be known; null otherwise.
 */
public data class ConfigurationStatus(
    val source: String,
    val version: Long,
    val documentVersion: Long,
    val digest: String,
    val appliedAt: Instant?,
    val age: Duration,
    val error: String?,
)

/**
 * How a document is published.
 *
 * @property expectedVersion the version of the document that this one replaces; null replaces whichever is there.
 * @property by the author's name, up to 256 bytes.
 * @property why the reason, up to 1,024 bytes.
 */
public data class PublishOptions
    @JvmOverloads
    constructor(
        val expectedVersion: Long? = null,
        val by: String = "",
        val why: String = "",
    )

internal fun CallBuffer.putAttributes(attributes: RequestAttributes): CallBuffer {
    putText(attributes.method).putText(attributes.path).putText(attributes.peer)
    putInt(attributes.headers.size)
    for ((name, value) in attributes.headers) putText(name).putText(value)
    putInt(attributes.attributes.size)
    for ((name, value) in attributes.attributes) putText(name).putText(value)
    return putInt(attributes.routerPaths)
}

internal fun CallBuffer.policyMatch() = PolicyMatch(text(), bytes(int()), long(), byte())

internal fun CallBuffer.requestDecision(): RequestDecision {
    val allowed = byte() != 0
    val cause = causeOf(byte())
    val (status, retryAfter) = int() to long()
    val decisions =
        list {
            val match = policyMatch()
            val reservation = optional()?.decodeToString()
            PolicyDecision(match, decision(), reservation)
        }
    return RequestDecision(allowed, cause, status.takeIf { it != 0 }, retryAfter.takeIf { it >= 0 }?.let(::durationOf), decisions)
}

internal fun CallBuffer.configurationStatus() =
    ConfigurationStatus(
        source = text(),
        version = long(),
        documentVersion = long(),
        digest = text(),
        appliedAt = long().takeIf { it > 0 }?.let { Instant.EPOCH.plus(it, ChronoUnit.MICROS) },
        age = durationOf(long()),
        error = optional()?.decodeToString(),
    )

/** Cancels what was reserved for a caller that gave up. What was spent stays spent, as with a check. */
internal fun RequestDecision.cancelAll(target: CallTarget) {
    for (made in decisions) {
        val reservation = made.reservation ?: continue
        target.finish(Call.cancel(Request(made.match.key, made.match.policy), reservationNamed(reservation)))
    }
}

/** The value of an entry as JSON. */
internal fun entryValue(value: Map<String, String>): String =
    value.entries.joinToString(",", "{", "}") { (name, text) -> "${jsonText(name)}:${jsonText(text)}" }

private fun jsonText(text: String): String =
    buildString {
        append('"')
        for (character in text) {
            when {
                character == '"' || character == '\\' -> append('\\').append(character)
                character < ' ' -> append("\\u%04x".format(character.code))
                else -> append(character)
            }
        }
        append('"')
    }
