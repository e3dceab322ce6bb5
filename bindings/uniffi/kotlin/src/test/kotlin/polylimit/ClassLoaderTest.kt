package polylimit

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.io.File
import java.lang.ref.WeakReference
import java.net.URL
import java.net.URLClassLoader
import java.time.Duration
import java.util.concurrent.CompletionException
import java.util.concurrent.TimeUnit

/** What the class loader of a web application runs: limiters one after the other, the threads of which end with each. */
class Application : Runnable {
    override fun run() {
        repeat(2) {
            val limiter = Limiter.of(mapOf("api" to "1/minute"))
            limiter.check("k")
            val waiting = limiter.asynchronous.acquireFuture(request("k"), Duration.ofHours(1))
            assertEquals(setOf("polylimit-events", "polylimit-completions"), threads())
            limiter.close()
            assertThrows(CompletionException::class.java) { waiting.join() }
            until("the threads have ended") { threads().isEmpty() }
        }
        Limiter.releaseClassLoader()
    }

    private fun threads(): Set<String> {
        val own = Thread.getAllStackTraces().keys.filter { it.contextClassLoader === javaClass.classLoader }
        return own.map { it.name }.filter { it.startsWith("polylimit-") }.toSet()
    }
}

private fun until(
    what: String,
    isSo: () -> Boolean,
) {
    val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20)
    while (!isSo()) {
        assertTrue(System.nanoTime() < deadline, "it is not so that $what")
        Thread.sleep(10)
    }
}

/** A web application that is reloaded leaves nothing behind that keeps its class loader. */
class ClassLoaderTest {
    private fun deployed(): WeakReference<ClassLoader> {
        // All of the class path is the application's own, as in WEB-INF/lib.
        val loader = URLClassLoader(classPath(), ClassLoader.getPlatformClassLoader())
        val application = loader.loadClass(Application::class.java.name).getDeclaredConstructor().newInstance() as Runnable
        var failure: Throwable? = null
        val thread = Thread(application)
        thread.contextClassLoader = loader
        thread.setUncaughtExceptionHandler { _, thrown -> failure = thrown }
        thread.start()
        thread.join()
        loader.close()
        assertEquals(null, failure)
        return WeakReference(loader)
    }

    @Test
    fun `threads end with the last limiter, and class loaders are collected`() {
        val loaders = List(2) { deployed() }
        until("class loaders are collected") {
            System.gc()
            loaders.all { it.get() == null }
        }
    }

    private companion object {
        fun classPath(): Array<URL> {
            val paths = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"))
            return paths.split(File.pathSeparator).map { File(it).toURI().toURL() }.toTypedArray()
        }
    }
}
