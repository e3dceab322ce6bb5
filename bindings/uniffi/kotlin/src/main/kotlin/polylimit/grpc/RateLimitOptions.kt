package polylimit.grpc

import io.grpc.Grpc
import io.grpc.Metadata
import io.grpc.ServerCall
import io.grpc.Status
import polylimit.Limiter
import polylimit.http.LimitOptions
import polylimit.http.RequestReader
import java.net.InetSocketAddress
import java.util.function.Function

/**
 * A call, as the functions of the options get it.
 *
 * @property call the call, with its method and its attributes.
 * @property headers the metadata that the client has sent.
 * @property message the message that is decided, in a limit of messages; null in a limit of calls.
 */
public class GrpcRequest(
    public val call: ServerCall<*, *>,
    public val headers: Metadata,
    public val message: Any? = null,
)

/**
 * The options of [RateLimitInterceptor]. `count` and `spent` get the status with which a call has ended. Paths and routes of rules are
 * `/package.Service/Method`, and the fields of requests are metadata of text. [onDenied] and [spentBy] are about HTTP, and are refused.
 */
public class RateLimitOptions(
    limiter: Limiter,
) : LimitOptions<GrpcRequest, Status, RateLimitOptions>(limiter) {
    internal var isForMessages = false
    internal var user: Function<GrpcRequest, String?>? = null

    /** Whether each message of a client is decided, with a cost of its own, in place of the call; false by default. */
    public fun eachMessage(each: Boolean): RateLimitOptions = apply { isForMessages = each }

    /** The authenticated user of a call, for `KeyPart.user()` and the attribute `user`; none by default. */
    public fun user(user: Function<GrpcRequest, String?>): RateLimitOptions = apply { this.user = user }
}

/** Reads calls. */
internal class GrpcReader(
    private val options: RateLimitOptions,
) : RequestReader<GrpcRequest> {
    override fun method(request: GrpcRequest): String = "POST"

    override fun peer(request: GrpcRequest): String? =
        (request.call.attributes[Grpc.TRANSPORT_ATTR_REMOTE_ADDR] as? InetSocketAddress)?.run { address?.hostAddress ?: hostString }

    override fun lines(
        request: GrpcRequest,
        header: String,
    ): List<String> = if (isBinary(header)) emptyList() else request.headers.getAll(keyOf(header))?.toList().orEmpty()

    /** Problems then have the status of the call among their fields. */
    override fun accept(request: GrpcRequest): String = "application/grpc"

    override fun cookie(
        request: GrpcRequest,
        name: String,
    ): String? = null

    override fun user(request: GrpcRequest): String? = options.user?.apply(request)

    override fun pathParameters(request: GrpcRequest): Map<String, String>? = null

    override fun path(request: GrpcRequest): String = "/" + request.call.methodDescriptor.fullMethodName

    override fun route(request: GrpcRequest): String = path(request)

    override fun headers(request: GrpcRequest): List<Pair<String, String>> =
        request.headers.keys().filterNot(::isBinary).flatMap { name -> lines(request, name).map { name to it } }

    private fun isBinary(name: String) = name.endsWith(Metadata.BINARY_HEADER_SUFFIX, ignoreCase = true)
}

internal fun keyOf(name: String): Metadata.Key<String> = Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER)
