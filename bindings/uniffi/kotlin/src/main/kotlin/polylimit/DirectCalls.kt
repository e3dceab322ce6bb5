package polylimit

/** The native function of direct calls; `bindings/uniffi/src/direct.rs` describes it and its operations. */
internal object DirectCalls {
    const val CHECK = 1
    const val PEEK = 2
    const val TAKE = 3
    const val CHARGE = 4
    const val REFUND = 5
    const val RESET = 6
    const val ACQUIRE = 7
    const val CHECK_MANY = 8
    const val CHECK_TOGETHER = 9
    const val READY = 10
    const val DOCTOR = 11
    const val RESERVE = 12
    const val COMMIT = 13
    const val CANCEL_RESERVATION = 14
    const val RENEW = 15
    const val END = 16
    const val RELEASE_RESERVATION = 17
    const val IS_LOST = 18
    const val BLOCK = 19
    const val DECIDE_BY_ATTRIBUTES = 20
    const val SET_ENTRY = 21
    const val DELETE_ENTRY = 22
    const val PUBLISH = 23
    const val WAIT_FOR_VERSION = 24
    const val MATCHING = 25
    const val CONFIGURATION = 26
    const val SET_DOCUMENT = 27
    const val PEEK_TOGETHER = 28
    const val RESERVE_TOGETHER = 29
    const val DECIDE = 32
    const val CONTINUE = 33
    const val OVERRULE = 34
    const val FINISH = 35
    const val OUTCOMES = 36
    const val RELEASE = 37
    const val APPLIES_TO = 38
    const val END_CHECK = 39
    const val LIST = 40
    const val SCAN_TOP = 41
    const val RESET_LISTED = 42
    const val EXPLAIN = 43
    const val EXPLAIN_REQUEST = 44
    const val FIELDS = 48
    const val PROBLEM = 49
    const val READ_HEAD = 50
    const val READ_BODY = 51
    const val OPEN_QUEUE = 64
    const val TAKE_ANSWERS = 65
    const val CANCEL = 66
    const val FETCH = 68
    const val STOP_WAITING = 69

    /** How a call waits: not at all, on this thread, or in a queue. */
    const val TRY = 1
    const val WAIT = 2
    const val SUBMIT = 4

    const val PENDING = -1
    const val TOO_LARGE = -2
    const val HAS_TO_WAIT = -3

    init {
        libraryPath
    }

    /** The length of the answer in the buffer, or one of the negative numbers above. */
    @JvmStatic
    external fun call(
        target: Long,
        buffer: Long,
        capacity: Int,
    ): Int
}

