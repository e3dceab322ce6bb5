@file:JvmName("Requests")

package polylimit

/** A request for a key that is text; its bytes in UTF-8 are the key. */
@JvmOverloads
@JvmName("of")
public fun request(
    key: String,
    policy: String? = null,
    cost: Long? = null,
): Request = Request(key.encodeToByteArray(), policy, cost)
