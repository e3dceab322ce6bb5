package polylimit

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/**
 * The calls of all limiters that wait for a store without a thread of their own. One thread of the process takes their answers, many
 * at a time.
 */
internal object Completions {
    private const val CAPACITY = 65_536

    private val waiting = ConcurrentHashMap<Long, Waiting>()
    private val lastTag = AtomicLong()

    /** The native queue. It lives as long as the native library. */
    val queue: Long by lazy {
        CallBuffer.use { buffer ->
            buffer.begin(DirectCalls.OPEN_QUEUE).putLong(-1).perform(0)
            buffer.long()
        }
    }

    private val answers by lazy { CallBuffer(CAPACITY) }

    val thread = SharedThread("polylimit-completions", ::stopWaiting, waiting::isNotEmpty, ::takeAnswers)

    fun add(call: Waiting): Long {
        val tag = lastTag.incrementAndGet()
        call.tag = tag
        waiting[tag] = call
        thread.ensureRunning()
        return tag
    }

    fun remove(tag: Long) {
        waiting.remove(tag)
        thread.endIfIdle()
    }

    /** Cancels a call. If it has its answer already, it receives it. */
    fun cancel(tag: Long) {
        val isCancelled =
            CallBuffer.use { buffer ->
                buffer.begin(DirectCalls.CANCEL, tag = tag).perform(queue)
                buffer.byte() != 0
            }
        if (isCancelled) remove(tag)
    }

    private fun takeAnswers() {
        answers.begin(DirectCalls.TAKE_ANSWERS, timeoutUs = Long.MAX_VALUE).perform(queue)
        repeat(answers.int()) {
            val call = waiting.remove(answers.long())
            if (call == null) runCatching { answers.answer() } else call.receiveFrom(answers)
        }
    }

    private fun stopWaiting() {
        CallBuffer.use { it.begin(DirectCalls.STOP_WAITING).perform(queue) }
    }
}
