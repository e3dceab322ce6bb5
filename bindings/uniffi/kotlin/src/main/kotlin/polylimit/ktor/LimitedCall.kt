package polylimit.ktor

import io.ktor.http.HttpStatusCode
import io.ktor.http.content.OutgoingContent
import io.ktor.server.application.Application
import io.ktor.server.application.ApplicationCall
import io.ktor.server.application.ApplicationCallPipeline
import io.ktor.server.application.call
import io.ktor.server.response.ApplicationResponse
import io.ktor.server.response.ApplicationSendPipeline
import io.ktor.util.AttributeKey
import io.ktor.util.cio.ChannelIOException
import io.ktor.util.pipeline.PipelinePhase
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.future.await
import kotlinx.coroutines.isActive
import polylimit.GuardCheck
import polylimit.http.RequestLimit
import java.io.IOException
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.atomic.AtomicBoolean

/** A call that passes limits, from the first of them to the end of its response. */
internal class LimitedCall {
    /** The fields of the limit that has decided last. Ktor cannot replace a field, so they are written with the head of the response. */
    @Volatile var fields: Map<String, String> = emptyMap()

    /** The outermost first. */
    private val limits = CopyOnWriteArrayList<Limited>()
    private val hasEnded = AtomicBoolean()

    val innermost: GuardCheck? get() = limits.lastOrNull()?.check

    fun enter(
        limit: RequestLimit<ApplicationCall, ApplicationResponse>,
        check: GuardCheck,
    ): Limited = Limited(limit, check).also(limits::add)

    /** What one limit holds for the call. */
    class Limited(
        val limit: RequestLimit<ApplicationCall, ApplicationResponse>,
        val check: GuardCheck,
    ) {
        /** Whether the handler has thrown. */
        @Volatile var hasFailed = false

        @Volatile var reading: ReadingContent? = null
    }

    private fun read(
        content: OutgoingContent,
        call: ApplicationCall,
    ): OutgoingContent =
        limits.filter { it.limit.readsResponse(it.check) }.fold(content) { inner, limited ->
            ReadingContent(inner, call.response, limited.check).also { limited.reading = it }.content
        }

    /** Gives back what does not count, and writes the fields. */
    private suspend fun writeHead(
        content: OutgoingContent,
        call: ApplicationCall,
    ) {
        val response = call.response
        // As Ktor does when it sends the head.
        response.status(content.status ?: response.status() ?: HttpStatusCode.OK)
        for (limited in if (hasEnded.get()) emptyList() else limits.asReversed()) {
            if (limited.limit.changes(limited.check)) fields = limited.limit.finishFuture(limited.check, call, response).await()
        }
        // Those that the application has written are left alone.
        for ((name, value) in fields) if (response.headers[name] == null) response.headers.append(name, value)
    }

    /** The content whose last part is sent when what the call holds has ended, so that its client finds it free with the next request. */
    private fun ending(
        content: OutgoingContent,
        call: ApplicationCall,
    ): OutgoingContent {
        if (content is OutgoingContent.ByteArrayContent || content is OutgoingContent.NoContent) end(call)
        if (content !is OutgoingContent.WriteChannelContent || limits.none { it.check.holds }) return content
        return PassingContent(content) { channel ->
            try {
                content.writeTo(channel)
            } catch (failure: Throwable) {
                // A client that has gone is no failure of the handler.
                if (failure !is IOException && failure !is CancellationException) limits.forEach { it.hasFailed = true }
                throw failure
            } finally {
                end(call)
            }
        }
    }

    private fun end(call: ApplicationCall) {
        if (!hasEnded.compareAndSet(false, true)) return
        for (limited in limits.asReversed()) {
            limited.check.use {
                limited.reading?.begin()
                if (!limited.hasFailed) limited.limit.end(it, call, call.response)
            }
        }
    }

    companion object {
        private val CALL = AttributeKey<LimitedCall>("polylimit.call")
        private val FOLLOWED = AttributeKey<Unit>("polylimit.followed")
        private val ALL = PipelinePhase("polylimit.all")
        private val BODY = PipelinePhase("polylimit.body")
        private val HEAD = PipelinePhase("polylimit.head")

        fun of(call: ApplicationCall): LimitedCall = call.attributes.computeIfAbsent(CALL) { LimitedCall() }

        /** Has an application follow the calls that limits have decided. */
        fun follow(application: Application) = application.attributes.computeIfAbsent(FOLLOWED) { add(application) }

        private fun add(application: Application) {
            application.insertPhaseBefore(ApplicationCallPipeline.Setup, ALL)
            application.intercept(ALL) {
                try {
                    proceed()
                } catch (failure: Throwable) {
                    // Other failures have a response, which is made further out.
                    val hasResponse = failure !is ChannelIOException && !call.response.isCommitted && currentCoroutineContext().isActive
                    if (!hasResponse) call.attributes.getOrNull(CALL)?.end(call)
                    throw failure
                }
            }
            val responses = application.sendPipeline
            // Before the body is compressed.
            responses.insertPhaseAfter(ApplicationSendPipeline.Render, BODY)
            responses.intercept(BODY) { content ->
                val limited = call.attributes.getOrNull(CALL) ?: return@intercept
                if (content is OutgoingContent) proceedWith(limited.read(content, call))
            }
            // When the status is final.
            responses.insertPhaseBefore(ApplicationSendPipeline.Engine, HEAD)
            responses.intercept(HEAD) { content ->
                val limited = call.attributes.getOrNull(CALL) ?: return@intercept
                if (call.response.isCommitted || content !is OutgoingContent) return@intercept
                try {
                    limited.writeHead(content, call)
                    proceedWith(limited.ending(content, call))
                } finally {
                    limited.end(call)
                }
            }
        }
    }
}
