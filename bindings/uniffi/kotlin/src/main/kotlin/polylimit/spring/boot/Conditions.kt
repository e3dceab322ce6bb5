package polylimit.spring.boot

import org.springframework.boot.context.properties.bind.Bindable
import org.springframework.boot.context.properties.bind.Binder
import org.springframework.context.annotation.Condition
import org.springframework.context.annotation.ConditionContext
import org.springframework.core.env.Environment
import org.springframework.core.type.AnnotatedTypeMetadata

/** Whether the properties say what the limits are. Otherwise the library has no effect on an application. */
internal class HasLimits : Condition {
    override fun matches(
        context: ConditionContext,
        metadata: AnnotatedTypeMetadata,
    ): Boolean {
        val policies = Bindable.mapOf(String::class.java, String::class.java)
        val environment = context.environment
        return Binder.get(environment).bind("polylimit.policies", policies).isBound || hasDocument(environment) || hasPolicy(environment)
    }
}

/** Whether the properties ask for a limit in front of handlers: by what they say, or because a document has the rules. */
internal class HasWebLimit : Condition {
    override fun matches(
        context: ConditionContext,
        metadata: AnnotatedTypeMetadata,
    ): Boolean {
        val environment = context.environment
        val enabled = environment.getProperty("polylimit.web.enabled", Boolean::class.javaObjectType)
        return enabled ?: (hasDocument(environment) || hasPolicy(environment))
    }
}

private fun hasDocument(environment: Environment) =
    environment.containsProperty("polylimit.document") || environment.containsProperty("polylimit.options.configuration")

private fun hasPolicy(environment: Environment) = Binder.get(environment).bind("polylimit.web.policy", Bindable.listOf(String::class.java)).isBound
