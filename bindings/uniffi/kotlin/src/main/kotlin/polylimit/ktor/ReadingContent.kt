package polylimit.ktor

import io.ktor.http.ContentType
import io.ktor.http.Headers
import io.ktor.http.HttpStatusCode
import io.ktor.http.content.OutgoingContent
import io.ktor.server.response.ApplicationResponse
import io.ktor.util.AttributeKey
import io.ktor.utils.io.ByteReadChannel
import io.ktor.utils.io.ByteWriteChannel
import io.ktor.utils.io.readAvailable
import io.ktor.utils.io.writeFully
import io.ktor.utils.io.writer
import kotlinx.coroutines.coroutineScope
import polylimit.GuardCheck

/** A response whose fields and body a check reads as they pass, for what they report as spent. */
internal class ReadingContent(
    private val original: OutgoingContent,
    private val response: ApplicationResponse,
    private val check: GuardCheck,
) {
    private var readsBody: Boolean? = null

    /** What is sent in place of the original. */
    val content: OutgoingContent = passing(original)

    /** Reads the fields, once. Returns whether the body has to be read. */
    fun begin(): Boolean = readsBody ?: check.readHead(fields()).also { readsBody = it }

    private fun fields(): List<Pair<String, String>> {
        val lines = (response.headers.allValues().entries() + original.headers.entries()).flatMap { (name, values) -> values.map { name to it } }
        return lines + listOfNotNull(original.contentType?.let { "content-type" to it.toString() })
    }

    /** A content without a body stays as it is, and so does a protocol that is no longer HTTP. */
    private fun passing(body: OutgoingContent): OutgoingContent =
        when (body) {
            is OutgoingContent.ByteArrayContent -> {
                val bytes = body.bytes()
                PassingContent(original) { send(bytes, it) }
            }
            is OutgoingContent.ReadChannelContent -> PassingContent(original) { pass(body.readFrom(), it) }
            is OutgoingContent.WriteChannelContent ->
                PassingContent(original) { target -> coroutineScope { pass(writer { body.writeTo(channel) }.channel, target) } }
            is OutgoingContent.ContentWrapper -> passing(body.delegate())
            else -> original
        }

    private suspend fun pass(
        source: ByteReadChannel,
        target: ByteWriteChannel,
    ) {
        val part = ByteArray(PART)
        while (true) {
            val size = source.readAvailable(part)
            if (size < 0) return
            send(part.copyOf(size), target)
        }
    }

    private suspend fun send(
        bytes: ByteArray,
        target: ByteWriteChannel,
    ) {
        if (begin()) check.readBody(bytes)
        target.writeFully(bytes)
        target.flush()
    }

    private companion object {
        const val PART = 8192
    }
}

/** A content with another way to write its body. */
internal class PassingContent(
    private val original: OutgoingContent,
    private val write: suspend (ByteWriteChannel) -> Unit,
) : OutgoingContent.WriteChannelContent() {
    override val contentType: ContentType? get() = original.contentType
    override val contentLength: Long? get() = original.contentLength
    override val status: HttpStatusCode? get() = original.status
    override val headers: Headers get() = original.headers

    override suspend fun writeTo(channel: ByteWriteChannel) = write(channel)

    override fun <T : Any> getProperty(key: AttributeKey<T>): T? = original.getProperty(key)

    override fun <T : Any> setProperty(
        key: AttributeKey<T>,
        value: T?,
    ) = original.setProperty(key, value)

    override fun trailers(): Headers? = original.trailers()
}
