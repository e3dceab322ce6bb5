"""Exact rate limiting: the same decision in this process, for all processes of a host, and in Redis.

>>> from polylimit import Limiter
>>> limiter = Limiter()
>>> bool(limiter.check("user:42", "100/minute"))
True

Durations are seconds or ``datetime.timedelta``; costs and limits are whole units. Nothing shows a key, a password or a
URL: no error, no ``repr``.
"""

from polylimit._core import (
    AsyncLimiter,
    AsyncReservation,
    Backoff,
    ClientAddress,
    ClientAddressRules,
    ClosedError,
    Decision,
    DegradedEvent,
    Finding,
    InternalError,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    Operation,
    Option,
    Policy,
    PolylimitError,
    Problem,
    Quota,
    QuotaUsage,
    Request,
    RequestLimits,
    Reservation,
    ReserveOperation,
    StoreFailedError,
    StoreUnavailableError,
    Usage,
    __version__,
    header_fields,
    options,
    problem,
    server_wait,
)

__all__ = [
    "AsyncLimiter",
    "AsyncReservation",
    "Backoff",
    "ClientAddress",
    "ClientAddressRules",
    "ClosedError",
    "Decision",
    "DegradedEvent",
    "Finding",
    "InternalError",
    "InvalidArgumentError",
    "Limiter",
    "ManualClock",
    "Operation",
    "Option",
    "Policy",
    "PolylimitError",
    "Problem",
    "Quota",
    "QuotaUsage",
    "Request",
    "RequestLimits",
    "Reservation",
    "ReserveOperation",
    "StoreFailedError",
    "StoreUnavailableError",
    "Usage",
    "__version__",
    "header_fields",
    "options",
    "problem",
    "server_wait",
]
