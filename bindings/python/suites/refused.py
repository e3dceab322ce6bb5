"""The tests of other projects that are expected to fail with the storages of polylimit, each with its reason."""

_RESET = "reset is refused, because it would have to forget every key"
_CLASS = "expects the class of another storage"
_STATISTICS = "the statistics of the sliding window counter are approximate: one count replaces those of two windows"
_CLIENT = "patches the client of another storage, which is not used; the tests of polylimit stop the server instead"

#: By suite: the end of a test's name, with or without its parameters, and the reason of the failure.
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
