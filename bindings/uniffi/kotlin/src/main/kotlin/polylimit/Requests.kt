@file:JvmName("Requests")

package polylimit

/** A request for a key that is text, which is counted by its bytes in UTF-8. */
@JvmOverloads
@JvmName("of")
public fun request(
    key: String,
    policy: String? = null,
    cost: Long? = null,
): Request = Request(key.encodeToByteArray(), policy, cost)
