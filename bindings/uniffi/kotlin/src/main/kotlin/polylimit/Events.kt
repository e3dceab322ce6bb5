package polylimit

import java.lang.ref.ReferenceQueue
import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap
import java.util.function.Consumer

/** Receives the events of a limiter until it is closed. Both of its classes hold a reference to it. */
internal class Listener(
    private val number: Long,
    @Volatile private var onDegraded: Consumer<DegradedEvent>?,
) : AutoCloseable {
    init {
        Events.add(number, this)
    }

    fun receive(event: DegradedEvent) {
        onDegraded?.accept(event)
    }

    override fun close() {
        Events.remove(number)
        onDegraded = null
    }
}

/** Delivers events: one thread waits for them, from the first limiter of the process on. */
internal object Events {
    private class Entry(
        val number: Long,
        listener: Listener,
    ) : WeakReference<Listener>(listener, collected)

    private val logger = System.getLogger("polylimit")
    private val listeners = ConcurrentHashMap<Long, Entry>()
    private val collected = ReferenceQueue<Listener>()

    init {
        val thread = Thread(null, ::deliverForever, "polylimit-events", 0, false)
        thread.isDaemon = true
        thread.contextClassLoader = Events::class.java.classLoader
        thread.start()
    }

    fun add(
        number: Long,
        listener: Listener,
    ) {
        while (true) listeners.remove((collected.poll() as Entry? ?: break).number)
        listeners[number] = Entry(number, listener)
    }

    fun remove(number: Long) {
        listeners.remove(number)
    }

    private fun deliverForever() {
        while (true) waitForEvents().forEach(::deliver)
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
