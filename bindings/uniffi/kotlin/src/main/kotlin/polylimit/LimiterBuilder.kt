package polylimit

import java.util.function.Consumer
import java.util.function.Supplier

/** The settings of a limiter, for Java: in Kotlin, [Settings] has them as named arguments. Made by [Limiter.builder]. */
public class LimiterBuilder internal constructor() {
    private var store: String? = "memory:"
    private val policies = mutableListOf<Policy>()
    private val options = linkedMapOf<String, String>()
    private var clock: ManualClock? = null
    private var document: String? = null
    private var onDegraded: Consumer<DegradedEvent>? = null
    private var credentials: Supplier<Credentials>? = null

    /**
     * The URL of the store: `memory:`, `local:<name>` or one such as `redis://localhost`. Without it the limits are those of this process
     * alone; one that is null, such as a missing variable of the environment, is refused by [build].
     */
    public fun store(url: String?): LimiterBuilder = apply { store = url }

    /** Adds a policy: its name, and its quotas such as `100/minute; 1000/hour`. */
    public fun policy(
        name: String,
        quotas: String,
    ): LimiterBuilder = policy(Policy(name, quotas))

    /** Adds a policy, which may have an outage policy and a lease. */
    public fun policy(policy: Policy): LimiterBuilder = apply { policies += policy }

    /** Sets an option, such as `deadline` to `20ms`; `storeOptions()` lists them. */
    public fun option(
        name: String,
        value: String,
    ): LimiterBuilder = apply { options[name] = value }

    /** A document of policies, rules and lists, in TOML or JSON, that the program keeps itself. */
    public fun document(text: String): LimiterBuilder = apply { document = text }

    /** The clock, in tests. */
    public fun clock(clock: ManualClock): LimiterBuilder = apply { this.clock = clock }

    /** Is called with each event of the limiter, on a thread for that alone. */
    public fun onDegraded(hook: Consumer<DegradedEvent>): LimiterBuilder = apply { onDegraded = hook }

    /** Gives user and password for each new connection to Redis, on a thread of its own; see the constructor of [Limiter]. */
    public fun credentials(give: Supplier<Credentials>): LimiterBuilder = apply { credentials = give }

    /** Makes the limiter. It connects to nothing: a store that cannot be reached is no error here. */
    @Throws(PolylimitException::class)
    public fun build(): Limiter {
        val settings = Settings(store, policies.toList(), options.toMap(), clock, document)
        return credentials?.let { Limiter(settings, onDegraded, it) } ?: Limiter(settings, onDegraded)
    }
}
