@file:JvmName("Requests")

package polylimit

/**
 * A key, the policy that is applied to it, and the units that the request spends. Its text form omits the key.
 *
 * @property key the key, such as a user or an address: up to 1 MiB.
 * @property policy a policy's name, or quotas such as `100/minute`; it may be null where the limiter has only one policy.
 * @property cost the units that the request spends, 0 to 10^12; null is 1.
 * @property headroom percent of every quota's capacity that the request leaves for others, 0 to 99; for a check, a peek and a reserve.
 * @property plan the plan of the key, for a limiter with a configuration: its quotas decide where the policy has it; a calendar may follow,
 *   as in `gold from=15`.
 */
public data class Request
    @JvmOverloads
    constructor(
        val key: ByteArray,
        val policy: String? = null,
        val cost: Long? = null,
        val headroom: Int = 0,
        val plan: String? = null,
    ) {
        override fun equals(other: Any?): Boolean =
            other is Request && key.contentEquals(other.key) && policy == other.policy && cost == other.cost &&
                headroom == other.headroom && plan == other.plan

        override fun hashCode(): Int = 31 * key.contentHashCode() + listOf(policy, cost, headroom, plan).hashCode()

        override fun toString(): String = "Request(policy=$policy, cost=$cost, headroom=$headroom, plan=$plan)"
    }

/** A request for a key that is text; its bytes in UTF-8 are the key. */
@JvmOverloads
@JvmName("of")
public fun request(
    key: String,
    policy: String? = null,
    cost: Long? = null,
    headroom: Int = 0,
    plan: String? = null,
): Request = Request(key.encodeToByteArray(), policy, cost, headroom, plan)
