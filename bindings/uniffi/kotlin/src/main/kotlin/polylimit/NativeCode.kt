package polylimit

import com.sun.jna.Native
import com.sun.jna.NativeLibrary
import com.sun.jna.Platform
import java.io.File
import java.io.IOException
import java.nio.ByteBuffer
import java.nio.CharBuffer
import java.nio.charset.CharacterCodingException
import java.nio.file.Files
import java.nio.file.StandardCopyOption

/**
 * The path of the native library, which the JVM has loaded. JNA loads the same file, because only then is it there once. It is the one in
 * the jar, or else where JNA finds one.
 */
internal val libraryPath: String by lazy {
    val override = System.getProperty("uniffi.component.polylimit_native.libraryOverride")?.let(::File)
    try {
        withoutContextClassLoader { load(override ?: unpacked() ?: installed()) }
    } catch (error: LinkageError) {
        if (error is UnsupportedPlatform) throw error
        throw UnsatisfiedLinkError(
            "polylimit's native library cannot be loaded: ${error.message}: it and that of JNA are unpacked into a temporary folder, which " +
                "must be writable and allow execution; -Djna.tmpdir=<folder> names another one",
        ).initCause(error)
    }
}

private class UnsupportedPlatform(
    message: String,
) : UnsatisfiedLinkError(message)

/** Gives the functions of generated code their addresses. */
internal fun register(functions: Class<*>) {
    val library = withoutContextClassLoader { NativeLibrary.getInstance(libraryPath) }
    Native.register(functions, library)
    // The functions keep their addresses, as the JVM has the library loaded until the class loader is collected. JNA's cleaner has a
    // thread while JNA keeps a library open, and the thread would keep the class loader.
    library.close()
}

/** Threads that JNA and the JDK start meanwhile do not keep the class loader of a web application. */
private inline fun <T> withoutContextClassLoader(block: () -> T): T {
    val thread = Thread.currentThread()
    val before = thread.contextClassLoader
    thread.contextClassLoader = null
    try {
        return block()
    } finally {
        thread.contextClassLoader = before
    }
}

/**
 * Ends what keeps the class loader: the references that JNA has to functions of generated code and, if JNA is of the same class loader and
 * not used by other applications, the thread by which it frees memory.
 */
internal fun releaseNativeCode() {
    Native.unregister(UniffiLib::class.java)
    Native.unregister(IntegrityCheckingUniffiLib::class.java)
    if (Native::class.java.classLoader !== loader) return
    val ofJna = Thread.getAllStackTraces().keys.filter { it.javaClass.name == CLEANER_THREAD && it.javaClass.classLoader === loader }
    // It returns when it is interrupted.
    ofJna.forEach(Thread::interrupt)
}

private const val CLEANER_THREAD = "com.sun.jna.internal.Cleaner\$CleanerThread"

/** The one in the jar or in a folder of classes. */
private fun unpacked(): File? =
    try {
        Native.extractFromResourcePath(LIBRARY, loader)
    } catch (_: IOException) {
        null
    }

private fun installed(): File =
    try {
        NativeLibrary.getInstance(LIBRARY).use { it.file }
    } catch (_: UnsatisfiedLinkError) {
        val platforms = PLATFORMS.filter { (platform, file) -> loader.getResource("$platform/$file") != null }.keys
        throw UnsupportedPlatform(
            "polylimit has no native library for the platform ${Platform.RESOURCE_PREFIX}: " +
                if (platforms.isEmpty()) "its jar has none at all" else "its jar has one for each of ${platforms.joinToString()}",
        )
    }

/** Of one file, the JVM loads a library for one class loader only. Another one, such as that of a web application in a folder, has a copy. */
private fun load(file: File): String {
    try {
        System.load(file.absolutePath)
        return file.absolutePath
    } catch (error: UnsatisfiedLinkError) {
        if ("already loaded in another classloader" !in error.message.orEmpty()) throw error
    }
    val copy = File.createTempFile("polylimit", ".${file.extension}", System.getProperty("jna.tmpdir")?.let(::File))
    copy.deleteOnExit()
    Files.copy(file.toPath(), copy.toPath(), StandardCopyOption.REPLACE_EXISTING)
    System.load(copy.path)
    return copy.path
}

/** The bytes of a text for native code. */
internal fun utf8Of(text: String): ByteBuffer =
    try {
        Charsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text))
    } catch (_: CharacterCodingException) {
        val at = text.indices.first { isHalf(text, it) }
        val code = text[at].code.toString(16)
        throw PolylimitException.InvalidArgument("a text has half of a character, \\u$code, at index $at: allowed is text that UTF-8 can hold")
    }

/** Whether there is half of a surrogate pair at that place. */
private fun isHalf(
    text: String,
    at: Int,
): Boolean =
    when {
        text[at].isHighSurrogate() -> text.getOrNull(at + 1)?.isLowSurrogate() != true
        else -> text[at].isLowSurrogate() && text.getOrNull(at - 1)?.isHighSurrogate() != true
    }

private val loader = DirectCalls::class.java.classLoader

private const val LIBRARY = "polylimit_uniffi"

/** Those that packages are built for, as JNA names them, with the library's file. */
private val PLATFORMS =
    mapOf(
        "linux-x86-64" to "lib$LIBRARY.so",
        "linux-aarch64" to "lib$LIBRARY.so",
        "darwin-x86-64" to "lib$LIBRARY.dylib",
        "darwin-aarch64" to "lib$LIBRARY.dylib",
        "win32-x86-64" to "$LIBRARY.dll",
    )
