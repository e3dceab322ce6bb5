package polylimit

/**
 * Which keys a list has, and when a page of it ends: all keys, and pages of 1,000, by default.
 *
 * ```
 * val options = ListOptions().policy("api").keyPrefix("user:").atLeastUsed(80)
 * do {
 *     val page = limiter.admin().list(options)
 *     page.keys.forEach { println("${it.key.text}: ${it.usedPercent} %") }
 *     options.cursor(page.cursor)
 * } while (page.cursor != null)
 * ```
 */
public class ListOptions {
    private var policy: String? = null
    private var keyPrefix: ByteArray? = null
    private var cursor: String? = null
    private val numbers = arrayOfNulls<Long>(NUMBERS)

    /** Only keys of this policy: its name, or its quotas as text. */
    public fun policy(policy: String): ListOptions = apply { this.policy = policy }

    /** Only keys that begin with this text. A key of which only the digest is known begins with none. */
    public fun keyPrefix(prefix: String): ListOptions = keyPrefix(prefix.encodeToByteArray())

    /** Only keys that begin with these bytes. */
    public fun keyPrefix(prefix: ByteArray): ListOptions = apply { keyPrefix = prefix }

    /** Only keys of which at least this much is used, in percent, 0 to 255. */
    public fun atLeastUsed(percent: Int): ListOptions = apply { numbers[0] = percent.toLong() }

    /** The page ends once it has this many keys, 1 or more; it may have about a thousand more. */
    public fun entries(entries: Long): ListOptions = apply { numbers[1] = entries }

    /** The page ends once the store has examined this many keys, 1 or more; 100,000 by default. */
    public fun examined(examined: Long): ListOptions = apply { numbers[2] = examined }

    /** The share of one server's time that a list in Redis may take, in percent, 1 to 100; 10 by default. */
    public fun pacePercent(percent: Int): ListOptions = apply { numbers[3] = percent.toLong() }

    /** Where the list goes on: the cursor of the page before; null is the beginning. `scanTop` has none. */
    public fun cursor(cursor: String?): ListOptions = apply { this.cursor = cursor }

    internal fun write(buffer: CallBuffer): CallBuffer {
        buffer.putText(policy).putBytes(keyPrefix).putText(cursor)
        for (number in numbers) buffer.put(number != null).putLong(number ?: 0)
        return buffer
    }

    private companion object {
        const val NUMBERS = 4
    }
}
