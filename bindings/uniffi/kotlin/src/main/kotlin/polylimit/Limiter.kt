package polylimit

import java.time.Duration
import java.util.function.Consumer
import java.util.function.Supplier

/**
 * Decides whether requests may proceed, and waits on the caller's own thread. A denial is a value, never an exception.
 *
 * May be used by any number of threads. Closing it gives back leases, ends connections and threads and frees what it
 * holds, at once and however long it is still referred to; operations after that, and those under way, fail with
 * [PolylimitException.Closed], and it reports nothing more.
 *
 * It logs to `polylimit` (`System.Logger`) when it begins to decide without its store, when it decides with it again,
 * and what its doctor finds; `onDegraded` is called with the same, on a thread for that alone. What it throws is logged.
 */
public class Limiter
    private constructor(
        settings: Settings,
        onDegraded: Consumer<DegradedEvent>?,
        private val native: NativeLimiter,
    ) : AutoCloseable {
        /** A limiter with these settings. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public constructor(settings: Settings, onDegraded: Consumer<DegradedEvent>? = null) :
            this(settings, onDegraded, NativeLimiter(settings))

        /**
         * A limiter with a function that gives user and password for each new connection to Redis, in place of those in the URL and the
         * options: for passwords that expire, such as the tokens of a cloud. It is called on a thread of its own, one call at a time, and
         * again when the server refuses what it gave; after a refusal or an exception not for 0.25 to 10 seconds, growing with each time in
         * a row. It may block: decisions have their deadline meanwhile. The message of an exception is the cause in [ready], the events
         * and the doctor. [Admin.setCredentials] replaces it; [close] does not wait for it.
         */
        @Throws(PolylimitException::class)
        public constructor(settings: Settings, onDegraded: Consumer<DegradedEvent>?, credentials: Supplier<Credentials>) :
            this(settings, onDegraded, openNative(settings, credentials))

        private val listener = Listener(native.keepEvents(), onDegraded)

        /** What stands before the colon of a URL is no secret. */
        private val kind = settings.store.orEmpty().substringBefore(':')

        @Volatile private var isClosed = false

        private val target: CallTarget = CallTarget(native, listener)

        /** The face for coroutines, and for futures in Java. Shares everything with this one. */
        public val asynchronous: AsyncLimiter = AsyncLimiter(target)

        /** The operations for operators: keys of the store, explanations, the policy document, lists. */
        public fun admin(): Admin = Admin(target)

        /** Makes a guard, which limits the requests of a web framework; for servlets there is [polylimit.servlet.RateLimitFilter]. */
        @Throws(PolylimitException::class)
        public fun guard(options: GuardOptions): Guard = Guard(native.guard(options))

        /** Decides, and spends the cost from every quota of the policy when all admit it. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun check(
            key: String,
            policy: String? = null,
            cost: Long? = null,
            headroom: Int = 0,
            plan: String? = null,
        ): Decision = check(request(key, policy, cost, headroom, plan))

        /** Decides, and spends the cost from every quota of the policy when all admit it. */
        @Throws(PolylimitException::class)
        public fun check(request: Request): Decision = target.answer(Call.check(request))

        /** The decision that a check would give now; changes no state. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun peek(
            key: String,
            policy: String? = null,
            cost: Long? = null,
            headroom: Int = 0,
            plan: String? = null,
        ): Decision = peek(request(key, policy, cost, headroom, plan))

        /** The decision that a check would give now; changes no state. */
        @Throws(PolylimitException::class)
        public fun peek(request: Request): Decision = target.answer(Call.peek(request))

        /** Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun take(
            key: String,
            policy: String? = null,
            cost: Long? = null,
        ): Usage = take(request(key, policy, cost))

        /** Spends as much of the cost as every quota admits, from 0 to the cost, and returns how much it took. */
        @Throws(PolylimitException::class)
        public fun take(request: Request): Usage = target.answer(Call.take(request))

        /** Spends the cost even if it exceeds what remains, for a cost that is known only afterwards. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun charge(
            key: String,
            policy: String? = null,
            cost: Long? = null,
        ): Usage = charge(request(key, policy, cost))

        /** Spends the cost even if it exceeds what remains, for a cost that is known only afterwards. */
        @Throws(PolylimitException::class)
        public fun charge(request: Request): Usage = target.answer(Call.charge(request))

        /** Returns units, at most those that are used, the newest first. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun refund(
            key: String,
            policy: String? = null,
            cost: Long? = null,
        ): Usage = refund(request(key, policy, cost))

        /** Returns units, at most those that are used, the newest first. */
        @Throws(PolylimitException::class)
        public fun refund(request: Request): Usage = target.answer(Call.refund(request))

        /** Removes the state of the key under its policy. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun reset(
            key: String,
            policy: String? = null,
        ): Usage = reset(request(key, policy))

        /** Removes the state of the key under its policy; the cost does not matter. */
        @Throws(PolylimitException::class)
        public fun reset(request: Request): Usage = target.answer(Call.reset(request))

        /**
         * Decides about a request by the configuration: its lists, rules and policies. Policies with a quota of concurrency are reserved,
         * under this id (null is a random one) and for this ttl (null is 30 seconds), and all others spend. With [remember], the id is
         * remembered for this time after the commit: see [ReserveOptions]. When one policy denies, nothing is spent or reserved, and the
         * decisions of the others are those of a peek.
         */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun decide(
            attributes: RequestAttributes,
            id: String? = null,
            ttl: Duration? = null,
            remember: Duration? = null,
        ): RequestDecision = target.answer(Call.decide(attributes, id, ttl, remember))

        /**
         * Waits until the request is admitted. Says at once that the timeout cannot be met: then the decision is a denial,
         * and nothing was spent. A thread that is interrupted gives up its place in line, and gives back what it was
         * admitted.
         */
        @Throws(PolylimitException::class, InterruptedException::class)
        public fun acquire(
            request: Request,
            timeout: Duration,
        ): Decision = target.answerInterruptibly(Call.acquire(request, timeout))

        /** As the other `acquire`, for a key that is text. */
        @JvmOverloads
        @Throws(PolylimitException::class, InterruptedException::class)
        public fun acquire(
            key: String,
            timeout: Duration,
            policy: String? = null,
            cost: Long? = null,
            headroom: Int = 0,
            plan: String? = null,
        ): Decision = acquire(request(key, policy, cost, headroom, plan), timeout)

        /**
         * Decides as a check does and, when every quota admits the request, sets its cost aside until the reservation is committed,
         * cancelled or closed, or until its time has passed. Nothing is spent before the commit. A denied request has a reservation
         * as well, which is not [Reservation.allowed]. With a timeout it waits in line, and can be interrupted, as [acquire].
         *
         * ```
         * limiter.reserve("tenant:7", cost = 4_000).use { reservation ->
         *     if (reservation.allowed) reservation.commit(spent = ask(model).tokens)
         * }
         * ```
         */
        @JvmOverloads
        @Throws(PolylimitException::class, InterruptedException::class)
        public fun reserve(
            key: String,
            policy: String? = null,
            cost: Long? = null,
            options: ReserveOptions = ReserveOptions(),
        ): Reservation = reserve(request(key, policy, cost), options)

        /** As the other `reserve`, for a key of bytes. */
        @JvmOverloads
        @Throws(PolylimitException::class, InterruptedException::class)
        public fun reserve(
            request: Request,
            options: ReserveOptions = ReserveOptions(),
        ): Reservation {
            val call = Call.reserve(request, options) { held -> Reservation(target, request, held) }
            return if (options.timeout == null) target.answer(call) else target.answerInterruptibly(call)
        }

        /**
         * Ends the reservation of this id, which another process may have made, and charges what was spent, in units from 0 to
         * 10^12; null is what was reserved. A reservation that is gone changes nothing, and [Usage.found] is false: a repeated commit
         * never charges twice.
         */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun commit(
            key: String,
            id: String,
            spent: Long? = null,
            policy: String? = null,
        ): Usage = commit(request(key, policy), id, spent)

        /** As the other `commit`; the cost of the request does not matter. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun commit(
            request: Request,
            id: String,
            spent: Long? = null,
        ): Usage = target.answer(Call.commit(request, reservationNamed(id), spent))

        /** Ends the reservation of this id and spends nothing; [Usage.found] says whether it was there. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun cancel(
            key: String,
            id: String,
            policy: String? = null,
        ): Usage = cancel(request(key, policy), id)

        /** As the other `cancel`; the cost of the request does not matter. */
        @Throws(PolylimitException::class)
        public fun cancel(
            request: Request,
            id: String,
        ): Usage = target.answer(Call.cancel(request, reservationNamed(id)))

        /** Makes the reservation of this id end that long from now, 1 ms to 48 h; [Usage.found] says whether it was there. */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun renew(
            key: String,
            id: String,
            ttl: Duration,
            policy: String? = null,
        ): Usage = renew(request(key, policy), id, ttl)

        /** As the other `renew`; the cost of the request does not matter. */
        @Throws(PolylimitException::class)
        public fun renew(
            request: Request,
            id: String,
            ttl: Duration,
        ): Usage = target.answer(Call.renew(request, reservationNamed(id), ttl))

        /** Checks several requests in one call, of one or more policies. Each is decided on its own, in order. */
        @Throws(PolylimitException::class)
        public fun checkMany(requests: List<Request>): List<CheckResult> = target.answer(Call.checkMany(requests))

        /**
         * Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
         * spent. When one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are
         * one of their sum.
         */
        @Throws(PolylimitException::class)
        public fun checkTogether(requests: List<Request>): List<Decision> = target.answer(Call.checkTogether(requests)).map { it.get() }

        /** The decisions that [checkTogether] would give now; changes no state. */
        @Throws(PolylimitException::class)
        public fun peekTogether(requests: List<Request>): List<Decision> = target.answer(Call.peekTogether(requests)).map { it.get() }

        /**
         * As [checkTogether], but requests under a policy with a quota such as `20 concurrent` are reserved: under this id (null is a
         * random one) and for this ttl, 1 ms to 48 h (null is 30 seconds); the others spend. With [remember], the id is remembered for so
         * long after their commits: see [ReserveOptions].
         *
         * The caller ends each reservation by [commit] or [cancel] with its request and the id. They are not renewed in the background:
         * [renew] makes them last longer.
         *
         * ```
         * val requests = listOf(request("tenant:7", "slots", cost = 0), request("user:42", "requests"))
         * val reserved = limiter.reserveTogether(requests)
         * if (reserved.allowed) limiter.commit(requests[0], reserved.id)
         * ```
         */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun reserveTogether(
            requests: List<Request>,
            id: String? = null,
            ttl: Duration? = null,
            remember: Duration? = null,
        ): RequestReservation = target.answer(Call.reserveTogether(requests, id, ttl, remember))

        /** Shows the kind of the store and the first policies, no URL. */
        override fun toString(): String {
            val names = policies.map { it.name }
            val shown = names.take(MAX_SHOWN).joinToString() + if (names.size > MAX_SHOWN) " and ${names.size - MAX_SHOWN} more" else ""
            return "Limiter($kind: $shown${if (isClosed) ", closed" else ""})"
        }

        /** Waits until the store answers, at most for that long. A service may call it when it starts. */
        @Throws(PolylimitException::class, InterruptedException::class)
        public fun ready(timeout: Duration): Unit = target.answerInterruptibly(Call.ready(timeout))

        /** Registers a policy, or changes the quotas of the one of that name. The usage is kept. */
        @Throws(PolylimitException::class)
        public fun setPolicy(
            name: String,
            quotas: String,
        ): Unit = native.setPolicy(name, quotas)

        /** The policy of that name, with its current quotas; or the policy of these quotas, if a request has used them. */
        public fun policy(name: String): Policy? = native.policy(name)

        /**
         * The policy by which a request that names this policy, quotas such as `100/minute` or none is decided. Quotas without
         * a name are registered by it; with a scope (1 to 256 bytes of text), they are a policy of their own there. A policy
         * that has a name is shared by all scopes. What no request may name is a [PolylimitException.InvalidArgument].
         */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun policyFor(
            policy: String? = null,
            scope: String? = null,
        ): Policy = native.policyFor(policy, scope)

        /** All policies, in the order in which they were registered, those made of quotas in requests included. */
        public val policies: List<Policy> get() = native.policies()

        /** What became of the operations so far: counts by name. */
        public val stats: Map<String, Long> get() = native.stats()

        /** What the limiter has counted, and the state of its store and its configuration: see docs/metrics.md. */
        public fun metrics(): List<MetricFamily> = native.metrics()

        /**
         * The same as text: `prometheus`, whose media type is `text/plain; version=0.0.4; charset=utf-8`, or `openmetrics`, whose media
         * type is `application/openmetrics-text; version=1.0.0; charset=utf-8`.
         */
        @JvmOverloads
        @Throws(PolylimitException::class)
        public fun metricsText(format: String = "prometheus"): String = native.metricsText(format)

        /** Gives back leases, and frees all that the limiter holds. May be called again. */
        override fun close() {
            isClosed = true
            native.shutDown()
            listener.close()
        }

        public companion object {
            private const val MAX_SHOWN = 8

            /**
             * Lets go of native code, so that the class loader of a web application that is stopped can be collected. It is the last call of
             * an application that has polylimit and JNA among its own libraries, such as in `ServletContextListener.contextDestroyed`, after
             * it has closed its limiters: nothing of polylimit works afterwards. Where JNA is a library of the container, JNA itself keeps
             * classes of polylimit.
             */
            @JvmStatic
            public fun releaseClassLoader(): Unit = releaseNativeCode()

            /** For Java: the settings of a limiter one by one. */
            @JvmStatic
            public fun builder(): LimiterBuilder = LimiterBuilder()

            /**
             * A limiter with one policy after another: its name, then its quotas. Without a store the limits are those of this process alone;
             * a store that is null, such as a missing variable of the environment, is a [PolylimitException.InvalidArgument].
             */
            @JvmStatic
            @JvmOverloads
            @Throws(PolylimitException::class)
            public fun of(
                policies: Map<String, String>,
                store: String? = "memory:",
                onDegraded: Consumer<DegradedEvent>? = null,
            ): Limiter = Limiter(Settings(store, policies.map { (name, quotas) -> Policy(name, quotas) }), onDegraded)
        }
    }
