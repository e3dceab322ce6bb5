package polylimit

import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap
import java.util.function.Consumer

/** Receives the events of a limiter until it is closed. Both of its classes hold a reference to it. */
internal class Listener(
    number: Long,
    @Volatile private var onDegraded: Consumer<DegradedEvent>?,
) : AutoCloseable {
    /** Runs once: when the limiter is closed, or when it is collected. */
    private val end = UniffiLib.CLEANER.register(this) { Events.remove(number) }

    init {
        Events.add(number, this)
    }

    fun receive(event: DegradedEvent) {
        onDegraded?.accept(event)
    }

    override fun close() {
        end.clean()
        onDegraded = null
    }
}

/** Delivers events: one thread waits for them while a limiter is open. */
internal object Events {
    private val logger = System.getLogger("polylimit")
    private val listeners = ConcurrentHashMap<Long, WeakReference<Listener>>()

    val thread = SharedThread("polylimit-events", ::stopWaitingForEvents) { waitForEvents().forEach(::deliver) }

    fun add(
        number: Long,
        listener: Listener,
    ) {
        listeners[number] = WeakReference(listener)
        SharedThread.limiterOpened()
        thread.ensureRunning()
    }

    fun remove(number: Long) {
        listeners.remove(number)
        SharedThread.limiterClosed()
    }

    /** An exception here does not keep later events from being delivered. */
    private fun deliver(event: DegradedEvent) {
        val listener = listeners[event.limiter]?.get() ?: return
        val level = if (event.kind == "ended") System.Logger.Level.INFO else System.Logger.Level.WARNING
        runCatching { logger.log(level, event.message) }
        runCatching { listener.receive(event) }.onFailure { thrown ->
            runCatching { logger.log(System.Logger.Level.WARNING, "onDegraded failed", thrown) }
        }
    }
}
