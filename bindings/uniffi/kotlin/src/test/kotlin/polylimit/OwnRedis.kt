package polylimit

import java.net.InetAddress
import java.net.ServerSocket
import kotlin.random.Random

/** A Redis server for one test, which may stop it. It asks for a password, and forgets keys when it is full. */
internal class OwnRedis : AutoCloseable {
    private val port = freePort()
    private val process =
        ProcessBuilder(
            ("redis-server --port $port --bind 127.0.0.1 --appendonly no --maxmemory 100mb " +
                "--maxmemory-policy allkeys-lru --requirepass $PASSWORD --save").split(" ") + "",
        ).redirectOutput(ProcessBuilder.Redirect.DISCARD).start()

    val url = "redis://:$PASSWORD@127.0.0.1:$port"

    /** The URL without a password. */
    val bareUrl = "redis://127.0.0.1:$port"

    /** Runs a command of redis-cli on the server, once it is there. */
    fun command(vararg words: String) {
        val line = listOf("redis-cli", "-e", "--no-auth-warning", "-a", PASSWORD, "-p", "$port") + words
        repeat(TRIES) {
            if (ProcessBuilder(line).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor() == 0) return
            Thread.sleep(10)
        }
        error("redis-cli has failed: ${words.joinToString(" ")}")
    }

    fun pause() = send("STOP")

    fun resume() = send("CONT")

    private fun send(signal: String) {
        check(ProcessBuilder("kill", "-$signal", "${process.pid()}").start().waitFor() == 0)
    }

    override fun close() {
        process.destroyForcibly().waitFor()
    }

    private companion object {
        const val TRIES = 1000
        const val PASSWORD = "p4ssw0rd-nobody-sees"

        /** A port that is free now: below those that the kernel gives to connections, which would take it meanwhile. */
        fun freePort(): Int =
            generateSequence { Random.nextInt(10_000, 20_000) }
                .first { port -> runCatching { ServerSocket(port, 1, InetAddress.getLoopbackAddress()).close() }.isSuccess }
    }
}
