package polylimit.spring.boot

import org.springframework.boot.context.properties.ConfigurationProperties
import org.springframework.core.io.Resource
import polylimit.ClientAddressRules
import polylimit.Policy
import polylimit.PolylimitException
import polylimit.Settings
import polylimit.http.KeyPart
import polylimit.http.LimitOptions
import java.time.Duration

/** The properties `polylimit.*` of an application of Spring Boot. A property that is left out has the default of the core. */
@ConfigurationProperties("polylimit")
public class PolylimitProperties {
    /** The URL of the store, such as `redis://localhost`: the limits are those of this process alone by default. */
    public var store: String? = "memory:"

    /** Quotas such as `100/minute; 1000/hour`, by the names of their policies. */
    public var policies: Map<String, String> = emptyMap()

    /** How policies decide while the store is unavailable, by their names: `fallback`, `allow` or `deny`. */
    public var outages: Map<String, String> = emptyMap()

    /** Where a policy document in TOML or JSON is, such as `classpath:limits.toml`. It is read once; `options.configuration` is followed. */
    public var document: Resource? = null

    /** Further options of the limiter, by their names with `-` or `_`: `deadline`, `fallback-share`, `configuration` and others. */
    public var options: Map<String, String> = emptyMap()

    /** How long the application waits for the store when it starts, before it fails; by default it does not wait. */
    public var readyTimeout: Duration? = null

    /** The limit in front of all handlers of the application. */
    public val web: Web = Web()

    /** A limit in front of handlers. */
    public class Web {
        /** Whether there is one: by default if it has a policy, or if the limiter has a document. */
        public var enabled: Boolean? = null

        /** Where it is in an application of Spring MVC: `filter`, or `interceptor`, which knows routes. */
        public var at: String = FILTER
            set(place) {
                // Another place would leave the application without a limit.
                if (place != FILTER && place != INTERCEPTOR) {
                    throw PolylimitException.InvalidArgument("polylimit.web.at is \"$place\": allowed are filter and interceptor")
                }
                field = place
            }

        /** Policies or quotas that are decided together; without one the document decides. */
        public var policy: List<String> = emptyList()

        /** The parts of the key: `address`, `user`, `header:NAME`, `cookie:NAME`, `path:NAME`. */
        public var key: List<String> = emptyList()

        /** How a request counts that lacks a part of its key: `address`, `share` or `refuse`. */
        public var missingKey: String? = null

        /** The URL patterns of the filter in an application of Spring MVC. */
        public var urlPatterns: List<String> = listOf("/*")

        /** The path patterns of the interceptor. */
        public var pathPatterns: List<String> = listOf("/**")

        /** The order of the filter among others; by default it comes after those with an order, such as the ones of Spring Security. */
        public var order: Int = Int.MAX_VALUE

        /** The only methods that are limited; all by default. */
        public var methods: List<String> = emptyList()

        /** Which fields clients get, such as `both epoch`. */
        public var headers: String? = null

        /** The origins whose pages may read denials. */
        public var corsOrigins: List<String> = emptyList()

        /** Whether it decides, spends and reports without ever denying. */
        public var dryRun: Boolean = false

        /** How long a request that would be denied may be held, up to 60 s, such as `200ms`; by default requests are not held. */
        public var wait: Duration? = null

        /** How many requests may be held at the same time; 100 by default. */
        public var maxWaiting: Int? = null

        /** Proxies that may name the client's address: networks, addresses, `loopback`, `link-local`, `private`. */
        public var trustedProxies: List<String> = emptyList()

        /** The header that these proxies write, such as `x-forwarded-for`; it has no default. */
        public var proxyHeader: String? = null

        internal fun <S : LimitOptions<*, *, S>> applyTo(options: S): S {
            if (policy.isNotEmpty()) options.policy(*policy.toTypedArray())
            if (key.isNotEmpty()) options.key(*key.map(KeyPart::of).toTypedArray())
            missingKey?.let(options::missingKey)
            if (methods.isNotEmpty()) options.methods(*methods.toTypedArray())
            headers?.let(options::headers)
            if (corsOrigins.isNotEmpty()) options.corsOrigins(*corsOrigins.toTypedArray())
            if (dryRun) options.dryRun(true)
            wait?.let(options::wait)
            maxWaiting?.let(options::maxWaiting)
            if (trustedProxies.isNotEmpty()) options.clientAddress(ClientAddressRules(trustedProxies, proxyHeader))
            return options
        }
    }

    internal fun settings() =
        Settings(
            store = store,
            policies = policies.map { (name, quotas) -> Policy(name, quotas, outage = outages[name]) },
            // Names of Spring have no underscores, unless they are in brackets.
            options = options.mapKeys { it.key.replace('-', '_') },
            document = document?.inputStream?.use { it.readBytes().decodeToString() },
        )

    internal companion object {
        const val FILTER = "filter"
        const val INTERCEPTOR = "interceptor"
    }
}
