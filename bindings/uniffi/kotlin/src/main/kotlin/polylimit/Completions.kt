package polylimit

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/**
 * The calls of all limiters that wait for a store without a thread of their own. One thread of the process takes their answers, many
 * at a time, from the first such call on.
 */
internal object Completions {
    private const val CAPACITY = 65_536

    private val waiting = ConcurrentHashMap<Long, WaitingCall<*>>()
    private val lastTag = AtomicLong()

    /** The native queue. It lives as long as the process. */
    val queue: Long =
        CallBuffer.use { buffer ->
            buffer.begin(DirectCalls.OPEN_QUEUE).putLong(-1).perform(0)
            buffer.long()
        }

    init {
        val thread = Thread(null, ::takeForever, "polylimit-completions", 0, false)
        thread.isDaemon = true
        thread.contextClassLoader = Completions::class.java.classLoader
        thread.start()
    }

    fun add(call: WaitingCall<*>): Long {
        val tag = lastTag.incrementAndGet()
        call.tag = tag
        waiting[tag] = call
        return tag
    }

    fun remove(tag: Long) {
        waiting.remove(tag)
    }

    /** Cancels a call. If it has its answer already, it receives it. */
    fun cancel(tag: Long) {
        val isCancelled =
            CallBuffer.use { buffer ->
                buffer.begin(DirectCalls.CANCEL, tag = tag).perform(queue)
                buffer.byte() != 0
            }
        if (isCancelled) waiting.remove(tag)
    }

    private fun takeForever() {
        val buffer = CallBuffer(CAPACITY)
        while (true) {
            buffer.begin(DirectCalls.TAKE_ANSWERS, timeoutUs = Long.MAX_VALUE).perform(queue)
            repeat(buffer.int()) {
                val call = waiting.remove(buffer.long())
                if (call == null) runCatching { buffer.answer() } else call.receiveFrom(buffer)
            }
        }
    }
}
