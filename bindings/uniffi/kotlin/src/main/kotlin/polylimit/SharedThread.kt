package polylimit

import java.util.concurrent.atomic.AtomicInteger

/**
 * A thread for all limiters of the process. It runs from when it is first needed until the last limiter has been closed or collected, and
 * is started again for a later one: a web application that is reloaded leaves no thread behind, which would keep its class loader.
 *
 * @param work one round of what the thread does; it waits until there is something to do, or [stopWaiting] is called.
 * @param isNeeded whether there is work that the thread has to do although no limiter is open.
 */
internal class SharedThread(
    private val name: String,
    private val stopWaiting: () -> Unit,
    private val isNeeded: () -> Boolean = { false },
    private val work: () -> Unit,
) {
    @Volatile private var isRunning = false

    /** Called after the work was announced where [isNeeded] sees it, so that either this or the thread that ends sees the other. */
    fun ensureRunning() {
        if (!isRunning) start()
    }

    @Synchronized
    private fun start() {
        if (isRunning) return
        isRunning = true
        val thread = Thread(null, ::run, name, 0, false)
        thread.isDaemon = true
        thread.contextClassLoader = SharedThread::class.java.classLoader
        thread.start()
    }

    private fun run() {
        do work() while (!hasEnded())
    }

    @Synchronized
    private fun hasEnded(): Boolean {
        isRunning = false
        isRunning = openLimiters.get() > 0 || isNeeded()
        return !isRunning
    }

    /** Ends the thread if neither a limiter nor a call needs it. */
    fun endIfIdle() {
        if (openLimiters.get() == 0 && !isNeeded()) stop()
    }

    @Synchronized
    private fun stop() {
        if (isRunning) stopWaiting()
    }

    companion object {
        private val openLimiters = AtomicInteger()

        fun limiterOpened() {
            openLimiters.incrementAndGet()
        }

        fun limiterClosed() {
            if (openLimiters.decrementAndGet() > 0) return
            Events.thread.endIfIdle()
            Completions.thread.endIfIdle()
        }
    }
}
