"""The tests of other projects that fail on purpose with our storages, each with the reason; nothing else may fail."""

_RESET = "reset is refused: it would have to forget every key"
_CLASS = "asks for the class of another storage"
_STATISTICS = (
    "the statistics of the sliding window counter are near: a count is told as one, not as that of two windows"
)
_CLIENT = (
    "breaks the client of another storage, which is not used; with a server that is away, our own tests do the same"
)

#: By suite: the end of a test's name, with its parameters or without, and why it fails.
REFUSED: dict[str, dict[str, str]] = {
    "limits": {
        "test_storage_string[in-memory]": _CLASS,
        "test_storage_string[redis]": _CLASS,
        "test_storage_reset[in-memory]": _RESET,
        "test_storage_reset[redis]": _RESET,
        "test_sliding_window_counter_previous_window": _STATISTICS,
        "aio/test_strategy.py::TestAsyncSlidingWindow::test_sliding_window_counter_stats": _STATISTICS,
    },
    "Flask-Limiter": {
        "test_constructor_arguments_over_config": _CLASS,
        "test_fallback_to_memory_backoff_check": _CLIENT,
        "test_fallback_to_memory_with_global_override": _CLIENT,
        "test_error_handling.py::test_fallback_to_memory": _CLIENT,
        "test_flask_ext.py::test_reset": _RESET,
    },
}
