package polylimit

import java.time.Duration
import java.util.concurrent.CompletableFuture

/** The operations of [Admin], without holding a thread. Made by [AsyncLimiter.admin]. The methods that end in `Future` are for Java. */
public class AsyncAdmin internal constructor(
    private val limiter: AsyncLimiter,
) {
    /** See [Admin.block]. */
    public suspend fun block(
        request: Request,
        time: Duration,
    ): Usage = limiter.await(Call.block(request, time))

    /** See [Admin.unblock]. */
    public suspend fun unblock(request: Request): Usage = block(request, Duration.ZERO)

    /** See [Admin.doctor]. */
    public suspend fun doctor(): List<Finding> = limiter.await(Call.doctor())

    /** See [Admin.list]. */
    public suspend fun list(options: ListOptions = ListOptions()): KeyPage = limiter.await(Call.list(options))

    /** See [Admin.scanTop]. */
    public suspend fun scanTop(
        number: Long,
        options: ListOptions = ListOptions(),
    ): KeyPage = limiter.await(Call.scanTop(number, options))

    /** See [Admin.resetListed]. A coroutine that is cancelled may have reset some of the keys. */
    public suspend fun resetListed(options: ListOptions = ListOptions()): ResetPage = limiter.await(Call.resetListed(options))

    /** See [Admin.explain]. */
    public suspend fun explain(request: Request): KeyExplanation = limiter.await(Call.explain(request))

    /** See [Admin.explainRequest]. */
    public suspend fun explainRequest(attributes: RequestAttributes): RequestExplanation = limiter.await(Call.explainRequest(attributes))

    /** See [Admin.setEntry]. */
    public suspend fun setEntry(
        item: String,
        value: String,
    ): ConfigurationStatus = limiter.await(Call.setEntry(item, value))

    /** See [Admin.setEntry]. */
    public suspend fun setEntry(
        item: String,
        value: Map<String, String>,
    ): ConfigurationStatus = setEntry(item, entryValue(value))

    /** See [Admin.deleteEntry]. */
    public suspend fun deleteEntry(item: String): ConfigurationStatus = limiter.await(Call.deleteEntry(item))

    /** See [Admin.publish]. */
    public suspend fun publish(
        document: String,
        options: PublishOptions = PublishOptions(),
    ): ConfigurationStatus = limiter.await(Call.publish(document, options))

    /** See [Admin.waitForVersion]. */
    public suspend fun waitForVersion(
        version: Long,
        timeout: Duration,
    ): ConfigurationStatus = limiter.await(Call.waitForVersion(version, timeout))

    /** [block] for Java. */
    public fun blockFuture(
        request: Request,
        time: Duration,
    ): CompletableFuture<Usage> = limiter.future(Call.block(request, time))

    /** [unblock] for Java. */
    public fun unblockFuture(request: Request): CompletableFuture<Usage> = blockFuture(request, Duration.ZERO)

    /** [doctor] for Java. */
    public fun doctorFuture(): CompletableFuture<List<Finding>> = limiter.future(Call.doctor())

    /** [list] for Java. */
    @JvmOverloads
    public fun listFuture(options: ListOptions = ListOptions()): CompletableFuture<KeyPage> = limiter.future(Call.list(options))

    /** [scanTop] for Java. */
    @JvmOverloads
    public fun scanTopFuture(
        number: Long,
        options: ListOptions = ListOptions(),
    ): CompletableFuture<KeyPage> = limiter.future(Call.scanTop(number, options))

    /** [resetListed] for Java. Cancelling the future may leave some of the keys reset. */
    @JvmOverloads
    public fun resetListedFuture(options: ListOptions = ListOptions()): CompletableFuture<ResetPage> =
        limiter.future(Call.resetListed(options))

    /** [explain] for Java. */
    public fun explainFuture(request: Request): CompletableFuture<KeyExplanation> = limiter.future(Call.explain(request))

    /** [explainRequest] for Java. */
    public fun explainRequestFuture(attributes: RequestAttributes): CompletableFuture<RequestExplanation> =
        limiter.future(Call.explainRequest(attributes))

    /** [setEntry] for Java. */
    public fun setEntryFuture(
        item: String,
        value: String,
    ): CompletableFuture<ConfigurationStatus> = limiter.future(Call.setEntry(item, value))

    /** [deleteEntry] for Java. */
    public fun deleteEntryFuture(item: String): CompletableFuture<ConfigurationStatus> = limiter.future(Call.deleteEntry(item))

    /** [publish] for Java. */
    @JvmOverloads
    public fun publishFuture(
        document: String,
        options: PublishOptions = PublishOptions(),
    ): CompletableFuture<ConfigurationStatus> = limiter.future(Call.publish(document, options))

    /** [waitForVersion] for Java. */
    public fun waitForVersionFuture(
        version: Long,
        timeout: Duration,
    ): CompletableFuture<ConfigurationStatus> = limiter.future(Call.waitForVersion(version, timeout))
}
