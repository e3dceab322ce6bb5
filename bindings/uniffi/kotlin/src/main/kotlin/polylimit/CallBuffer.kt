package polylimit

import com.sun.jna.Native
import com.sun.jna.Pointer
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.atomic.AtomicReferenceArray

/**
 * The memory in which a request reaches native code, and in which the answer comes back. One call uses it at a time. The layout is
 * described in `bindings/uniffi/src/direct/layout.rs`.
 */
internal class CallBuffer(
    capacity: Int,
) {
    private var memory = allocate(capacity)
    private var address = addressOf(memory)

    /** Starts a request with its header. */
    fun begin(
        operation: Int,
        waits: Int = DirectCalls.TRY or DirectCalls.WAIT,
        queue: Long = 0,
        tag: Long = 0,
        timeoutUs: Long = 0,
    ): CallBuffer {
        memory.clear()
        memory.putLong((operation or (waits shl 8)).toLong())
        memory.putLong(queue).putLong(tag).putLong(timeoutUs)
        return this
    }

    fun put(flag: Boolean): CallBuffer = room(1).also { memory.put(if (flag) 1 else 0) }

    fun putByte(number: Int): CallBuffer = room(1).also { memory.put(number.toByte()) }

    fun putInt(number: Int): CallBuffer = room(4).also { memory.putInt(number) }

    fun putLong(number: Long): CallBuffer = room(8).also { memory.putLong(number) }

    /** Bytes with their length; null is left out. */
    fun putBytes(bytes: ByteArray?): CallBuffer {
        if (bytes == null) return putInt(NONE)
        room(4 + bytes.size)
        memory.putInt(bytes.size).put(bytes)
        return this
    }

    fun putText(text: String?): CallBuffer = putBytes(text?.encodeToByteArray())

    fun putTexts(texts: Collection<String>): CallBuffer {
        putInt(texts.size)
        for (text in texts) putText(text)
        return this
    }

    fun putRequest(request: Request): CallBuffer {
        val plan = request.plan
        putByte((if (request.cost != null) HAS_COST else 0) or if (plan != null) HAS_PLAN else 0)
        putLong(request.cost ?: 0).putInt(request.headroom).putBytes(request.key).putText(request.policy)
        return if (plan == null) this else putText(plan)
    }

    /** The form of a report: the bytes of its record. */
    fun putRecord(): CallBuffer = putByte(RECORD)

    /** Performs the call. Returns false if a queue has the answer later, or the caller did not want to wait. */
    fun perform(target: Long): Boolean = outcome(target) >= 0

    /** As [perform], but returns [DirectCalls.PENDING] or [DirectCalls.HAS_TO_WAIT] where there is no answer. */
    fun outcome(target: Long): Int {
        var length = DirectCalls.call(target, address, memory.capacity())
        if (length == DirectCalls.TOO_LARGE) {
            val (kept, needed) = memory.getLong(0) to memory.getInt(8)
            grow(needed)
            begin(DirectCalls.FETCH)
            length = DirectCalls.call(kept, address, memory.capacity())
        }
        if (length >= 0) {
            memory.position(0).limit(length)
        } else {
            check(length == DirectCalls.PENDING || length == DirectCalls.HAS_TO_WAIT) { "a direct call returned $length" }
        }
        return length
    }

    /** One of the two addresses of checks that a guard's call has in place of an answer while it is pending. */
    fun pendingAddress(index: Int): Long = memory.getLong(index * Long.SIZE_BYTES)

    /** Whether the answer goes on; an empty one is nothing. */
    fun hasMore(): Boolean = memory.hasRemaining()

    /** Throws the error that the answer may be in place of nothing. */
    fun throwError() {
        if (memory.hasRemaining()) answer()
    }

    fun byte(): Int = memory.get().toInt()

    fun int(): Int = memory.getInt()

    fun long(): Long = memory.getLong()

    fun bytes(length: Int): ByteArray = ByteArray(length).also(memory::get)

    /** Bytes that may be left out. */
    fun optional(): ByteArray? = memory.getInt().let { length -> if (length == NONE) null else bytes(length) }

    fun text(): String = bytes(memory.getInt()).decodeToString()

    inline fun <T> list(item: () -> T): List<T> {
        val count = int()
        return if (count == 1) listOf(item()) else List(count) { item() }
    }

    private fun room(bytes: Int): CallBuffer {
        if (memory.remaining() < bytes) grow(Math.addExact(memory.position(), bytes))
        return this
    }

    private fun grow(needed: Int) {
        val larger = allocate(maxOf(needed, 2 * memory.capacity()))
        memory.flip()
        larger.put(memory)
        memory = larger
        address = addressOf(larger)
    }

    companion object {
        const val NONE = -1
        private const val RECORD = 1
        private const val HAS_COST = 1
        private const val HAS_PLAN = 2
        private const val CAPACITY = 4096
        private const val MAX_KEPT = 65_536

        /** Neighbouring threads use slots that do not share a cache line. */
        private const val SLOTS = 64
        private const val STRIDE = 16

        private val slots = AtomicReferenceArray<CallBuffer>(SLOTS * STRIDE)
        private val others = ConcurrentLinkedQueue<CallBuffer>()

        private fun allocate(capacity: Int) = ByteBuffer.allocateDirect(capacity).order(ByteOrder.LITTLE_ENDIAN)

        private fun addressOf(memory: ByteBuffer) = Pointer.nativeValue(Native.getDirectBufferPointer(memory))

        /**
         * Runs a block with a buffer. There are as many buffers as there were calls at the same time, in place of one for each
         * thread, of which a program may start very many.
         */
        inline fun <T> use(block: (CallBuffer) -> T): T {
            val slot = slot()
            val buffer = take(slot)
            try {
                return block(buffer)
            } finally {
                give(slot, buffer)
            }
        }

        private fun slot(): Int = (Thread.currentThread().id.toInt() and (SLOTS - 1)) * STRIDE

        private fun take(slot: Int): CallBuffer = slots.getAndSet(slot, null) ?: others.poll() ?: CallBuffer(CAPACITY)

        private fun give(
            slot: Int,
            buffer: CallBuffer,
        ) {
            if (buffer.memory.capacity() <= MAX_KEPT && !slots.compareAndSet(slot, null, buffer)) others.add(buffer)
        }
    }
}
