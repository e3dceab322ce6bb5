package polylimit.http

import polylimit.GuardAnswer
import polylimit.GuardCheck
import polylimit.GuardFacts
import polylimit.GuardOutage
import polylimit.PolylimitException
import polylimit.RequestAttributes
import java.util.concurrent.CompletableFuture

/** What a limit reads of the requests of a web framework. */
public interface RequestReader<Q> {
    /** The method, such as `GET`. */
    public fun method(request: Q): String

    /** The address at the other end of the socket; null or empty for a Unix socket. */
    public fun peer(request: Q): String?

    /** The values of all lines of a header, in the order they were received. */
    public fun lines(
        request: Q,
        header: String,
    ): List<String>

    /** The types that the client accepts, which is what its header says. */
    public fun accept(request: Q): String? = lines(request, "Accept").firstOrNull()

    /** The value of a cookie. */
    public fun cookie(
        request: Q,
        name: String,
    ): String?

    /** The authenticated user. */
    public fun user(request: Q): String?

    /** The path parameters that the framework has found. */
    public fun pathParameters(request: Q): Map<String, String>?

    /** The path as the client has sent it, for a limiter with a configuration. */
    public fun path(request: Q): String? = null

    /**
     * The pattern of the handler that the router has found, with the prefixes of all mounts, parameters written `{name}` and a rest of any
     * length `{*name}`; null before the router has found one.
     */
    public fun route(request: Q): String? = null

    /** The name of the budget of quotas without a name, the same in every process: by default method and route; null outside of all. */
    public fun budget(request: Q): String? = route(request)?.let { "${method(request)} $it" }

    /** What the router ignores in a path: the sum of [IGNORES_CASE], [DROPS_PARAMETERS] and [ACCEPTS_SUFFIX]. */
    public fun routerPaths(request: Q): Int = 0

    /** Whether the limit is attached to handlers. Then it counts preflight requests too: those that get there run the handler. */
    public val isOnHandler: Boolean get() = false

    /** The names and values of all lines of all headers, in the order they were received, for a limiter with a configuration. */
    public fun headers(request: Q): List<Pair<String, String>> = emptyList()

    public companion object {
        /** `/Login` reaches the handler of `/login`. */
        public const val IGNORES_CASE: Int = 1

        /** `/login;a=1` reaches the handler of `/login`. */
        public const val DROPS_PARAMETERS: Int = 2

        /** `/login.json` reaches the handler of `/login`. */
        public const val ACCEPTS_SUFFIX: Int = 4
    }
}

/** A limit on the requests of a web framework: an adapter asks it and writes the responses. */
public class RequestLimit<Q, R>
    @Throws(PolylimitException::class)
    constructor(
        private val options: LimitOptions<Q, R, *>,
        private val reader: RequestReader<Q>,
    ) {
        private val guard = options.guard().also { options.checkBeside(it) }
        private val parts = guard.keyParts().map { it.substringBefore(':') to it.substringAfter(':', "") }
        private val forwarded = options.clientAddress?.header()

        /**
         * Whether a request changes after its response is known, so that [finish] and [end] have to be called: to be asked when its handler
         * has run, because guards further in may share what this one has charged.
         */
        public fun changes(check: GuardCheck): Boolean = options.count != null || check.isShared

        /** Makes the response of a request that does not proceed, if the program wants to: otherwise the adapter does. */
        public val onDenied: DenialHandler<Q, R>? get() = options.onDenied

        /**
         * Decides about a request, and lets the program overrule an outage; null if the request is not limited.
         *
         * @param outer the check of the limit around this one on the same request.
         * @throws PolylimitException for an argument that is not allowed, and when the limiter is closed.
         */
        @Throws(PolylimitException::class)
        public fun decide(
            request: Q,
            outer: GuardCheck?,
        ): GuardAnswer? {
            val answer = guard.decide(facts(request, outer) ?: return null)
            val outage = answer.outage ?: return answer
            return answer.check.overrule(ruling(request, answer, outage))
        }

        /**
         * As [decide], without waiting on the caller's thread: the future is complete when this returns, unless the store has to be waited
         * for. What depends on it then runs on the common pool, and so does `onOutage`.
         */
        @Throws(PolylimitException::class)
        public fun decideFuture(
            request: Q,
            outer: GuardCheck?,
        ): CompletableFuture<GuardAnswer?> {
            val facts = facts(request, outer) ?: return CompletableFuture.completedFuture(null)
            val result = CompletableFuture<GuardAnswer?>()
            result.follow(guard.decideFuture(facts)) { answer ->
                val outage = answer.outage
                when (outage) {
                    null -> result.give(answer)
                    else -> result.follow(answer.check.overruleFuture(ruling(request, answer, outage))) { result.give(it) }
                }
            }
            return result
        }

        /** Goes on when a step is done; a caller that cancels gives the step up. */
        private fun CompletableFuture<GuardAnswer?>.follow(
            step: CompletableFuture<GuardAnswer>,
            then: (GuardAnswer) -> Unit,
        ) {
            step.whenComplete { answer, failure ->
                if (failure == null) runCatching { then(answer) }.onFailure(::completeExceptionally) else completeExceptionally(failure)
            }
            whenComplete { _, _ -> if (isCancelled) step.cancel(false) }
        }

        private fun CompletableFuture<GuardAnswer?>.give(answer: GuardAnswer) {
            if (!complete(answer)) answer.check.close()
        }

        /** What is known about a request; null if it is not limited. */
        private fun facts(
            request: Q,
            outer: GuardCheck?,
        ): GuardFacts? {
            if (!appliesTo(request)) return null
            if (options.skip?.test(request) == true) return null
            val policies = options.policyFunction?.let { it.apply(request).orEmpty() }
            if (policies?.isEmpty() == true) return null
            return GuardFacts(
                key = options.key?.apply(request)?.ifEmpty { null }?.encodeToByteArray(),
                parts = if (parts.isEmpty()) emptyList() else parts.map { (kind, name) -> part(request, kind, name)?.ifEmpty { null }?.encodeToByteArray() },
                peer = reader.peer(request).orEmpty().ifEmpty { THIS_HOST },
                forwarded = forwarded?.let { reader.lines(request, it) }.orEmpty(),
                cost = options.cost?.applyAsLong(request),
                policies = policies,
                accept = reader.accept(request),
                route = if (guard.isPerRoute) reader.budget(request) else null,
                outer = outer,
                attributes = if (guard.isByConfiguration) attributes(request) else null,
                costs = options.costs(request),
            )
        }

        /** What the program says about an outage. */
        private fun ruling(
            request: Q,
            answer: GuardAnswer,
            outage: GuardOutage,
        ): Boolean? {
            val rateLimit = if (outage.error == null) RateLimit(answer.check).also { it.outcomes } else null
            return options.onOutage?.apply(OutageEvent(request, rateLimit, outage.error))
        }

        /** The fields that a denial needs so that a page of the request's origin may read it, unless it has `access-control-allow-origin`. */
        public fun corsFields(request: Q): Map<String, String> =
            if (options.hasOrigins) guard.corsFields(reader.lines(request, "Origin").firstOrNull()) else emptyMap()

        /** Runs the handler of a request. If it fails, runs `onFailure`, whose own failure is added to the handler's. */
        public inline fun handle(
            handler: () -> Unit,
            onFailure: () -> Unit,
        ) {
            try {
                handler()
            } catch (failure: Throwable) {
                try {
                    onFailure()
                } catch (other: Throwable) {
                    failure.addSuppressed(other)
                }
                throw failure
            }
        }

        /** The fields of the response to a request that is answered, after what does not count is given back. */
        public fun finish(
            check: GuardCheck,
            request: Q,
            response: R,
        ): Map<String, String> = check.finish(options.count?.test(request, response) ?: true)

        /** As [finish], without waiting on the caller's thread; see [decideFuture]. */
        public fun finishFuture(
            check: GuardCheck,
            request: Q,
            response: R,
        ): CompletableFuture<Map<String, String>> = check.finishFuture(options.count?.test(request, response) ?: true)

        /** Whether the response may report what was spent, so that it has to be passed to the check. */
        public fun readsResponse(check: GuardCheck): Boolean = check.holds && (options.hasMeters || guard.isByConfiguration)

        /** Ends the reservations that a check holds, when the response is done or its client has gone. */
        public fun end(
            check: GuardCheck,
            request: Q,
            response: R,
        ) {
            if (check.holds) options.end(check, request, response)
        }

        /** Whether the method of a request is limited; asked only where that is not plain. */
        private fun appliesTo(request: Q): Boolean {
            val method = reader.method(request)
            val isOptions = method == "OPTIONS"
            if (!options.hasMethods && !isOptions) return true
            val isPreflight = isOptions && !reader.isOnHandler && reader.lines(request, "Origin").isNotEmpty()
            val requested = if (isPreflight) reader.lines(request, "Access-Control-Request-Method").firstOrNull() else null
            return guard.appliesTo(method, requested)
        }

        /** What the configuration of the limiter may be about. */
        private fun attributes(request: Q): RequestAttributes {
            val given = options.attributes?.apply(request).orEmpty()
            val known = mutableMapOf<String, String>()
            reader.route(request)?.let { known["route"] = it }
            reader.user(request)?.ifEmpty { null }?.let { known["user"] = it }
            for ((name, value) in given) if (value != null) known[name] = value
            return RequestAttributes(
                method = reader.method(request),
                path = reader.path(request),
                peer = reader.peer(request).orEmpty().ifEmpty { THIS_HOST },
                headers = reader.headers(request),
                attributes = known,
                routerPaths = reader.routerPaths(request),
            )
        }

        /** The value of a part of the key. The guard finds the address. */
        private fun part(
            request: Q,
            kind: String,
            name: String,
        ): String? =
            when (kind) {
                "user" -> reader.user(request)
                "header" -> reader.lines(request, name).ifEmpty { null }?.joinToString(", ")
                "cookie" -> reader.cookie(request, name)
                "path" -> (options.pathParameters?.apply(request) ?: reader.pathParameters(request))?.get(name)
                else -> null
            }

        private companion object {
            /** The peer of a Unix socket. */
            const val THIS_HOST = "127.0.0.1"
        }
    }
