package polylimit.webflux

import org.reactivestreams.Publisher
import org.springframework.core.io.buffer.DataBuffer
import org.springframework.http.server.reactive.ServerHttpResponse
import org.springframework.http.server.reactive.ServerHttpResponseDecorator
import polylimit.GuardCheck
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono

/** A response whose fields and body a check reads as they pass, for what they report as spent. */
internal class ReadingResponse(
    response: ServerHttpResponse,
    private val check: GuardCheck,
) : ServerHttpResponseDecorator(response) {
    private var readsBody: Boolean? = null

    /** Reads the fields, once. Returns whether the body has to be read. */
    fun begin(): Boolean =
        readsBody ?: check
            .readHead(buildList { headers.each { name, values -> for (value in values) add(name to value) } })
            .also { readsBody = it }

    override fun writeWith(body: Publisher<out DataBuffer>): Mono<Void> = super.writeWith(Flux.from(body).doOnNext(::read))

    override fun writeAndFlushWith(body: Publisher<out Publisher<out DataBuffer>>): Mono<Void> =
        super.writeAndFlushWith(Flux.from(body).map { Flux.from(it).doOnNext(::read) })

    private fun read(part: DataBuffer) {
        if (!begin()) return
        // Neither the position nor the count of what is read changes for the writer.
        val position = part.readPosition()
        val bytes = ByteArray(part.readableByteCount())
        part.read(bytes)
        part.readPosition(position)
        check.readBody(bytes)
    }
}
