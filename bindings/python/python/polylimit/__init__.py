"""Exact rate limiting: the same decision in this process, for all processes of a host, and in Redis.

>>> from polylimit import Limiter
>>> limiter = Limiter()
>>> bool(limiter.check("user:42", "100/minute"))
True

Durations are seconds or ``datetime.timedelta``; costs and limits are whole units. Nothing shows a key, a password or a
URL: no error, no ``repr``.

Integrations are modules of their own, which import their library:

``polylimit.flask``, ``polylimit.quart``, ``polylimit.django``, ``polylimit.drf``, ``polylimit.fastapi``,
``polylimit.litestar``, ``polylimit.aiohttp_server``, ``polylimit.sanic``, ``polylimit.asgi``
    Limits for Flask, Quart, Django, its REST framework, FastAPI and Starlette, Litestar, the server of aiohttp, Sanic,
    and any other ASGI application.
``polylimit.grpc``
    Limits for calls of gRPC servers and their messages.
``polylimit.celery``, ``polylimit.rq``, ``polylimit.dramatiq``
    Limits for the tasks of queues.
``polylimit.keys``
    By which key a request counts there.
``polylimit.functions``
    Limits for functions and blocks of code.
``polylimit.httpx``, ``polylimit.httpx2``, ``polylimit.requests``, ``polylimit.aiohttp``
    Clients that stay within a limit and wait as servers demand.
``polylimit.litellm``
    Limits of requests, tokens and money in LiteLLM's proxy.
``polylimit.prometheus``, ``polylimit.opentelemetry``
    Metrics for monitoring systems.
``polylimit.limits``
    Storages for the library limits, and so for Flask-Limiter and slowapi.
``polylimit.reports``
    The types of the reports for operators, such as those of ``Admin.explain`` and ``Admin.list``.
"""

try:
    from polylimit._core import __version__
except ImportError as _error:
    from polylimit._loading import explained

    raise explained(_error, __file__) from _error

from polylimit._core import (
    Admin,
    AsyncAdmin,
    AsyncLimiter,
    AsyncReservation,
    Backoff,
    CandidateCounts,
    ClientAddress,
    ClientAddressRules,
    ClosedError,
    ConfigurationStatus,
    Decision,
    DegradedEvent,
    Finding,
    InternalError,
    InvalidArgumentError,
    Limiter,
    ManualClock,
    MetricFamily,
    MetricHistogram,
    MetricSample,
    Operation,
    Option,
    Policy,
    PolicyDecision,
    PolicyMatch,
    PolylimitError,
    Problem,
    Quota,
    QuotaUsage,
    Request,
    RequestAttributes,
    RequestDecision,
    RequestLimits,
    RequestReservation,
    Reservation,
    ReserveOperation,
    StoreFailedError,
    StoreUnavailableError,
    Usage,
    header_fields,
    options,
    problem,
    server_wait,
)

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncLimiter",
    "AsyncReservation",
    "Backoff",
    "CandidateCounts",
    "ClientAddress",
    "ClientAddressRules",
    "ClosedError",
    "ConfigurationStatus",
    "Decision",
    "DegradedEvent",
    "Finding",
    "InternalError",
    "InvalidArgumentError",
    "Limiter",
    "ManualClock",
    "MetricFamily",
    "MetricHistogram",
    "MetricSample",
    "Operation",
    "Option",
    "Policy",
    "PolicyDecision",
    "PolicyMatch",
    "PolylimitError",
    "Problem",
    "Quota",
    "QuotaUsage",
    "Request",
    "RequestAttributes",
    "RequestDecision",
    "RequestLimits",
    "RequestReservation",
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
