package polylimit.http

/** A part of the key that is read from the request. */
public class KeyPart private constructor(
    private val text: String,
) {
    override fun toString(): String = text

    public companion object {
        /** The client's address, as the option `clientAddress` finds it. */
        @JvmStatic
        public fun address(): KeyPart = KeyPart("address")

        /** The authenticated user. */
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

        /** The part of this text, the same in every language, such as `header:x-api-key`. A guard refuses others. */
        @JvmStatic
        public fun of(text: String): KeyPart = KeyPart(text)
    }
}
