package polylimit.servlet

import jakarta.servlet.ServletOutputStream
import jakarta.servlet.WriteListener
import jakarta.servlet.http.HttpServletResponse
import jakarta.servlet.http.HttpServletResponseWrapper
import polylimit.GuardCheck
import java.io.FilterWriter
import java.io.PrintWriter
import java.io.Writer

/** A response that a check reads as it is written, because it reports what its request has spent. */
internal class ReadingResponse(
    response: HttpServletResponse,
    private val check: GuardCheck,
) : HttpServletResponseWrapper(response) {
    private val readsBody by lazy { check.readHead(fields()) }
    private val stream by lazy { ReadStream(super.getOutputStream()) }
    private val text by lazy { PrintWriter(ReadWriter(super.getWriter())) }

    /** Reads the fields, if they were not read before. */
    fun begin() {
        readsBody
    }

    override fun getOutputStream(): ServletOutputStream = stream

    override fun getWriter(): PrintWriter = text

    private fun read(
        bytes: ByteArray,
        offset: Int,
        length: Int,
    ) {
        if (readsBody) check.readBody(bytes, offset, length)
    }

    /** Not all containers have the type among their headers. */
    private fun fields(): List<Pair<String, String>> {
        val headers = headerNames.flatMap { name -> getHeaders(name).map { name to it } }
        return headers + listOfNotNull(contentType?.let { "content-type" to it })
    }

    private inner class ReadStream(
        private val to: ServletOutputStream,
    ) : ServletOutputStream() {
        override fun write(byte: Int) {
            read(byteArrayOf(byte.toByte()), 0, 1)
            to.write(byte)
        }

        override fun write(
            bytes: ByteArray,
            offset: Int,
            length: Int,
        ) {
            read(bytes, offset, length)
            to.write(bytes, offset, length)
        }

        override fun flush() = to.flush()

        override fun close() = to.close()

        override fun isReady(): Boolean = to.isReady

        override fun setWriteListener(listener: WriteListener) = to.setWriteListener(listener)
    }

    private inner class ReadWriter(
        to: Writer,
    ) : FilterWriter(to) {
        override fun write(character: Int) = write(Character.toString(character), 0, 1)

        override fun write(
            characters: CharArray,
            offset: Int,
            length: Int,
        ) = write(String(characters, offset, length), 0, length)

        override fun write(
            text: String,
            offset: Int,
            length: Int,
        ) {
            // JSON is read the same in every charset.
            val bytes = text.substring(offset, offset + length).encodeToByteArray()
            read(bytes, 0, bytes.size)
            out.write(text, offset, length)
        }
    }
}
