@file:JvmName("Requests")

package polylimit

/**
 * A key, the policy that is applied to it, and the units that the request spends. Its text form omits the key.
 *
 * @property key the key, such as a user or an address: up to 1 MiB.
 * @property policy a policy's name, or quotas such as `100/minute`; it may be null where the limiter has only one policy.
 * @property cost the units that the request spends, 0 to 10^12; null is 1.
 */
public data class Request(
    val key: ByteArray,
    val policy: String? = null,
    val cost: Long? = null,
) {
    override fun equals(other: Any?): Boolean =
        other is Request && key.contentEquals(other.key) && policy == other.policy && cost == other.cost

    override fun hashCode(): Int = 31 * (31 * key.contentHashCode() + policy.hashCode()) + cost.hashCode()

    override fun toString(): String = "Request(policy=$policy, cost=$cost)"
}

/** A request for a key that is text; its bytes in UTF-8 are the key. */
@JvmOverloads
@JvmName("of")
public fun request(
    key: String,
    policy: String? = null,
    cost: Long? = null,
): Request = Request(key.encodeToByteArray(), policy, cost)
