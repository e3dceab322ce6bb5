@file:JvmName("Errors")

package polylimit

/** The code string of an error, the same in every language. */
public val PolylimitException.code: String
    get() =
        when (this) {
            is PolylimitException.InvalidArgument -> "invalid_argument"
            is PolylimitException.StoreUnavailable -> "store_unavailable"
            is PolylimitException.StoreFailed -> "store_failed"
            is PolylimitException.Closed -> "closed"
            is PolylimitException.Internal -> "internal"
        }

/** The exception of the error with that number, from 1 up. */
internal fun errorOf(
    number: Int,
    message: String,
): PolylimitException = errorOf(CODES.getOrElse(number - 1) { "internal" }, message)

private val CODES = errorTable().sortedBy { it.number }.map { it.code }

/** The exception of that code. */
internal fun errorOf(
    code: String,
    message: String,
): PolylimitException =
    when (code) {
        "invalid_argument" -> PolylimitException.InvalidArgument(message)
        "store_unavailable" -> PolylimitException.StoreUnavailable(message)
        "store_failed" -> PolylimitException.StoreFailed(message)
        "closed" -> PolylimitException.Closed(message)
        else -> PolylimitException.Internal(message)
    }

/**
 * The decision of one of several checks.
 *
 * @throws PolylimitException the error of this check, if it has one.
 */
@Throws(PolylimitException::class)
public fun CheckResult.get(): Decision =
    decision ?: throw errorOf(errorCode ?: "internal", errorMessage ?: "a check was not answered")
