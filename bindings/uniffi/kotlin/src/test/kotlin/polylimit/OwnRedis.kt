package polylimit

import java.net.ServerSocket

/** A Redis server for one test, which may stop it. It asks for a password, and forgets keys when it is full. */
internal class OwnRedis : AutoCloseable {
    private val port = ServerSocket(0).use { it.localPort }
    private val process =
        ProcessBuilder(
            ("redis-server --port $port --bind 127.0.0.1 --appendonly no --maxmemory 100mb " +
                "--maxmemory-policy allkeys-lru --requirepass $PASSWORD --save").split(" ") + "",
        ).redirectOutput(ProcessBuilder.Redirect.DISCARD).start()

    val url = "redis://:$PASSWORD@127.0.0.1:$port"

    fun pause() = send("STOP")

    fun resume() = send("CONT")

    private fun send(signal: String) {
        check(ProcessBuilder("kill", "-$signal", "${process.pid()}").start().waitFor() == 0)
    }

    override fun close() {
        process.destroyForcibly().waitFor()
    }

    private companion object {
        const val PASSWORD = "p4ssw0rd-nobody-sees"
    }
}
