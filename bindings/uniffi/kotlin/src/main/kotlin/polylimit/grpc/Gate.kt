package polylimit.grpc

import java.util.concurrent.CompletableFuture

/** Runs events in their order and one at a time, and holds them back while one of them waits. */
internal class Gate(
    private val onFailure: (Throwable) -> Unit,
) {
    private val events = ArrayDeque<() -> CompletableFuture<*>?>()
    private var isBusy = false

    /** Runs an event, on this thread if nothing waits; it may return what has to be done before the next one. */
    fun run(event: () -> CompletableFuture<*>?) {
        synchronized(this) {
            events.addLast(event)
            if (isBusy) return
            isBusy = true
        }
        try {
            drain()
        } catch (failure: Throwable) {
            // The caller's own events have failed, and it handles that.
            synchronized(this) { isBusy = false }
            throw failure
        }
    }

    private fun drain() {
        while (true) {
            val event = synchronized(this) { events.removeFirstOrNull() ?: return@drain leave() }
            val waits = event() ?: continue
            if (waits.isDone) {
                waits.exceptionally { onFailure(it).let { null } }
                continue
            }
            waits.whenComplete { _, failure ->
                failure?.let(onFailure)
                resume()
            }
            return
        }
    }

    /** Goes on after a wait, where no caller handles what an event throws; later events run all the same. */
    private fun resume() {
        while (true) {
            try {
                return drain()
            } catch (failure: Throwable) {
                onFailure(failure)
            }
        }
    }

    private fun leave() {
        isBusy = false
    }
}
