package polylimit.grpc

import io.grpc.Context
import io.grpc.Contexts
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall
import io.grpc.Metadata
import io.grpc.ServerCall
import io.grpc.ServerCallHandler
import io.grpc.ServerInterceptor
import io.grpc.Status
import polylimit.GuardAnswer
import polylimit.GuardCheck
import polylimit.PolylimitException
import polylimit.Problem
import polylimit.http.RateLimit
import polylimit.http.RequestLimit
import java.util.Base64
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CompletionException
import java.util.concurrent.atomic.AtomicBoolean

/**
 * Limits the calls of a gRPC server, unary and streaming, or each message of their clients. No thread waits for the store.
 *
 * A call over its limit ends with `RESOURCE_EXHAUSTED`, whose details have a `google.rpc.RetryInfo` where waiting helps, and a
 * `google.rpc.QuotaFailure`; a deny list with `PERMISSION_DENIED`, a missing key with `INVALID_ARGUMENT`, an outage with `UNAVAILABLE`.
 * The fields of HTTP are metadata: of the headers of an admitted call, and of the trailers of a denial. The handler finds the decisions
 * by [RATE_LIMIT]. What a call has reserved is held until it has ended, or its client has gone.
 */
public class RateLimitInterceptor
    @Throws(PolylimitException::class)
    constructor(
        private val options: RateLimitOptions,
    ) : ServerInterceptor {
        private val limit = RequestLimit(options, GrpcReader(options))

        init {
            val advice = "the status of a gRPC call is that of its denial: leave it out"
            if (limit.onDenied != null) throw PolylimitException.InvalidArgument("onDenied is given, and $advice")
            if (options.hasMeters) throw PolylimitException.InvalidArgument("spentBy is given, and messages of gRPC have no meters: use spent")
        }

        override fun <A, B> interceptCall(
            call: ServerCall<A, B>,
            headers: Metadata,
            next: ServerCallHandler<A, B>,
        ): ServerCall.Listener<A> {
            val limited = LimitedCall(call, headers)
            val gated = GatedListener(limited, next)
            gated.begin()
            return gated
        }

        private fun decide(
            request: GrpcRequest,
            outer: GuardCheck?,
        ): CompletableFuture<GuardAnswer?> =
            try {
                limit.decideFuture(request, outer)
            } catch (failure: Exception) {
                CompletableFuture.failedFuture(failure)
            }

        /** A call with the fields of its limits, which ends what it holds. */
        private inner class LimitedCall<A, B>(
            call: ServerCall<A, B>,
            val headers: Metadata,
        ) : SimpleForwardingServerCall<A, B>(call) {
            private val isClosed = AtomicBoolean()
            private val hasEnded = AtomicBoolean()
            private var fields = emptyMap<String, String>()
            private var check: GuardCheck? = null

            @Volatile private var handlerFailure: Throwable? = null

            val request: GrpcRequest get() = GrpcRequest(delegate(), headers)

            /** Whether the call goes on, to its end within the check unless that is about a message. Its fields are sent with its headers. */
            fun take(
                answer: GuardAnswer,
                isForCall: Boolean,
            ): Boolean {
                fields = answer.fields
                val problem = answer.problem
                if (problem == null) return true.also { if (isForCall) check = answer.check }
                val (status, trailers) = denial(problem)
                answer.check.close()
                if (isClosed.compareAndSet(false, true)) super.close(status, trailers.apply { add(fields) })
                return false
            }

            override fun sendHeaders(headers: Metadata) {
                if (!isClosed.get()) super.sendHeaders(headers.apply { add(fields) })
            }

            /** A handler may not have heard yet that a message was denied. */
            override fun sendMessage(message: B) {
                if (!isClosed.get()) super.sendMessage(message)
            }

            override fun close(
                status: Status,
                trailers: Metadata,
            ) {
                // A message that was over its limit has ended the call already.
                if (!isClosed.compareAndSet(false, true)) return
                super.close(status, trailers)
                end(status)
            }

            /** Ends the call after a failure that the server does not see; a handler's gets the status that the server gives it. */
            fun fail(failure: Throwable) {
                val cause = if (failure is CompletionException) failure.cause ?: failure else failure
                val isHandlers = cause === handlerFailure
                if (isHandlers) runCatching { logger.log(System.Logger.Level.ERROR, "the handler of a call has failed", cause) }
                val status = if (isHandlers) HANDLER_FAILED else Status.INTERNAL.withDescription("the limit of the call has failed")
                close(status.withCause(cause), Metadata())
            }

            /** The handler of the call has thrown it. */
            fun failHandler(failure: Throwable): Nothing {
                handlerFailure = failure
                end(HANDLER_FAILED.withCause(failure))
                throw failure
            }

            /** The call is over. */
            fun end(status: Status) {
                val check = check ?: return
                if (!hasEnded.compareAndSet(false, true)) return
                val finished = if (limit.changes(check)) limit.finishFuture(check, request, status) else CompletableFuture.completedFuture(emptyMap<String, String>())
                finished.whenComplete { _, _ -> check.use { limit.end(it, request, status) } }
            }
        }

        /** Hands events to the listener of the handler, which is there when the call is decided. */
        private inner class GatedListener<A, B>(
            private val call: LimitedCall<A, B>,
            private val next: ServerCallHandler<A, B>,
        ) : ServerCall.Listener<A>() {
            private val gate = Gate(call::fail)
            private val context = Context.current()
            private var listener: ServerCall.Listener<A>? = null

            fun begin() =
                gate.run {
                    if (options.isForMessages) return@run start(context)
                    decide(call.request, CHECK.get(context)).thenAccept { answer ->
                        if (answer == null) {
                            start(context)
                        } else if (call.take(answer, isForCall = true)) {
                            start(context.withValues(CHECK, answer.check, RATE_LIMIT, RateLimit(answer.check)))
                        }
                    }
                }

            private fun start(within: Context): CompletableFuture<*>? {
                try {
                    listener = Contexts.interceptCall(within, call, call.headers, next)
                } catch (failure: Throwable) {
                    call.failHandler(failure)
                }
                return null
            }

            override fun onMessage(message: A) =
                gate.run {
                    if (!options.isForMessages || listener == null) {
                        pass { onMessage(message) }
                        return@run null
                    }
                    decide(GrpcRequest(call, call.headers, message), CHECK.get(context)).thenAccept { answer ->
                        val isAdmitted = answer == null || call.take(answer, isForCall = false)
                        answer?.check?.close()
                        if (isAdmitted) return@thenAccept pass { onMessage(message) }
                        pass { onCancel() }
                        listener = null
                    }
                }

            override fun onHalfClose() = then { pass { onHalfClose() } }

            override fun onReady() = then { pass { onReady() } }

            override fun onCancel() =
                then {
                    call.end(Status.CANCELLED)
                    pass { onCancel() }
                }

            override fun onComplete() =
                then {
                    call.end(Status.OK)
                    pass { onComplete() }
                }

            private fun then(event: () -> Unit) = gate.run { event().let { null } }

            /** A call that was denied has no listener. */
            private fun pass(event: ServerCall.Listener<A>.() -> Unit) {
                try {
                    listener?.event()
                } catch (failure: Throwable) {
                    call.failHandler(failure)
                }
            }
        }

        public companion object {
            /** The decisions about a call, in the context of its handler. */
            @JvmField
            public val RATE_LIMIT: Context.Key<RateLimit> = Context.key("polylimit.rateLimit")
            private val CHECK: Context.Key<GuardCheck> = Context.key("polylimit.check")
        }
    }

private val logger = System.getLogger("polylimit")

/** What servers of gRPC send for an exception of a handler. */
private val HANDLER_FAILED = Status.UNKNOWN.withDescription("Application error processing RPC")
private val DETAILS = Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER)

private fun Metadata.add(fields: Map<String, String>) {
    for ((name, value) in fields) put(keyOf(name), value)
}

/** The status of a denial, and the trailers with its details. */
private fun denial(problem: Problem): Pair<Status, Metadata> {
    val code = Status.fromCodeValue(problem.fields.getValue("grpc-status").toInt())
    val trailers = Metadata()
    trailers.put(DETAILS, Base64.getDecoder().decode(problem.fields.getValue("grpc-status-details-bin")))
    return code.withDescription(problem.detail) to trailers
}
