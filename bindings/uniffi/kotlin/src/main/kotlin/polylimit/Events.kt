package polylimit

import java.lang.ref.ReferenceQueue
import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap
import java.util.function.Consumer

/** Whom a limiter tells, until it is closed. Its faces hold it. */
internal class Listener(
    private val number: Long,
    @Volatile private var onDegraded: Consumer<DegradedEvent>?,
) : AutoCloseable {
    init {
        Events.add(number, this)
    }

    fun hear(event: DegradedEvent) {
        onDegraded?.accept(event)
    }

    override fun close() {
        Events.remove(number)
        onDegraded = null
    }
}

/** Tells what limiters notice: one thread waits for it, from the first limiter of the process on. */
internal object Events {
    private class Entry(
        val number: Long,
        listener: Listener,
    ) : WeakReference<Listener>(listener, collected)

    private val logger = System.getLogger("polylimit")
    private val listeners = ConcurrentHashMap<Long, Entry>()
    private val collected = ReferenceQueue<Listener>()

    init {
        val thread = Thread(null, ::tellForever, "polylimit-events", 0, false)
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

    private fun tellForever() {
        while (true) waitForEvents().forEach(::tell)
    }

    /** Nothing that goes wrong here keeps later events from being told. */
    private fun tell(event: DegradedEvent) {
        val listener = listeners[event.limiter]?.get() ?: return
        val level = if (event.kind == "ended") System.Logger.Level.INFO else System.Logger.Level.WARNING
        runCatching { logger.log(level, event.message) }
        runCatching { listener.hear(event) }.onFailure { thrown ->
            runCatching { logger.log(System.Logger.Level.WARNING, "onDegraded failed", thrown) }
        }
    }
}
