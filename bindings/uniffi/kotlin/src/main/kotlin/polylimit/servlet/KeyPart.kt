package polylimit.servlet

import jakarta.servlet.http.HttpServletRequest

/** A part of the key that is read from the request. */
public class KeyPart private constructor(
    private val text: String,
) {
    override fun toString(): String = text

    public companion object {
        /** The client's address, as the option `clientAddress` finds it. */
        @JvmStatic
        public fun address(): KeyPart = KeyPart("address")

        /** The authenticated user, `request.remoteUser`. */
        @JvmStatic
        public fun user(): KeyPart = KeyPart("user")

        /** The values of the header with this name. */
        @JvmStatic
        public fun header(name: String): KeyPart = KeyPart("header:$name")

        /** The value of the cookie with this name. */
        @JvmStatic
        public fun cookie(name: String): KeyPart = KeyPart("cookie:$name")

        /** The value of the path parameter with this name: see the option `pathParameters`. */
        @JvmStatic
        public fun path(name: String): KeyPart = KeyPart("path:$name")

        /** The part of this text, the same in every language, such as `header:x-api-key`. The filter refuses others. */
        @JvmStatic
        public fun of(text: String): KeyPart = KeyPart(text)
    }
}

/** The key of requests, as the options say. */
internal class RequestKey(
    private val options: RateLimitOptions,
    parts: List<String>,
) {
    private val parts = parts.map { it.substringBefore(':') to it.substringAfter(':', "") }

    /** What the program's function returns for the request, if there is one. */
    fun of(request: HttpServletRequest): ByteArray? = options.key?.apply(request)?.encodeToByteArray()

    /** The values of the parts. The guard finds the address. */
    fun values(request: HttpServletRequest): List<ByteArray?> =
        parts.map { (kind, name) ->
            when (kind) {
                "user" -> request.remoteUser
                "header" -> request.getHeaders(name).asSequence().toList().ifEmpty { null }?.joinToString(", ")
                "cookie" -> request.cookies?.firstOrNull { it.name == name }?.value
                "path" -> options.pathParameters.apply(request)?.get(name)
                else -> null
            }?.encodeToByteArray()
        }
}
