from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NoReturn, TypedDict, final, overload

from typing_extensions import Self, TypeAlias, Unpack

__all__ = [
    "AsyncLimiter",
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
    "Passed",
    "PlainGuard",
    "Policy",
    "PolylimitError",
    "Problem",
    "Quota",
    "QuotaUsage",
    "Request",
    "Sender",
    "StoreFailedError",
    "StoreUnavailableError",
    "Usage",
    "__version__",
    "header_fields",
    "options",
    "problem",
    "refunded",
    "suggestion",
]

__version__: str

_Quotas: TypeAlias = str | Quota | Sequence[str | Quota]
_Algorithm: TypeAlias = Literal["sliding_window", "token_bucket", "leaky_bucket", "fixed_window", "sliding_log"]

_Outage: TypeAlias = Literal["fallback", "allow", "deny"]

class _Options(TypedDict, total=False):
    max_keys: str | float | None
    """The most keys that are held in this process, over all policies. Allowed: 1 or more. ``1000000`` unless told otherwise."""
    local_size: str | None
    """How many bytes a local store takes when it is made. One that is there has to have that size. Allowed: 1MiB to 64GiB. ``64MiB`` unless told otherwise."""
    deadline: str | float | timedelta | None
    """How long a decision may take, with queueing, connecting, sending and waiting for the reply. What takes longer is answered by the outage policy. Allowed: 1ms to 60s. ``50ms`` unless told otherwise."""
    outage: _Outage | Mapping[str, _Outage] | None
    """What a policy answers while Redis cannot be asked, unless the policy has an answer of its own. Allowed: fallback, allow or deny. ``fallback`` unless told otherwise."""
    fallback_share: str | float | None
    """Which part of each limit this process admits by itself while Redis cannot be asked and the outage policy is fallback; one divided by the number of processes keeps their sum within the limit. A number in code is rounded to 6 decimals. Allowed: more than 0, up to 1, with at most 6 decimals. ``1`` unless told otherwise."""
    first_connect_max: str | float | timedelta | None
    """For how long the first decisions of a process, or of another runtime or event loop in it, wait for the first connection instead of being answered by the outage policy; then they have their deadline. It ends at once when Redis refuses or fails. Allowed: 0 (no longer than the deadline), or 1ms to 60s. ``1s`` unless told otherwise."""
    denial_cache_max: str | float | timedelta | None
    """For how long a key that Redis has denied may be denied without asking again, and never for longer than Redis would. It ends at once when this process gives something back, and when the server tells that another one did, which may fail: then after this time at the latest. Allowed: 0 (never), or 1ms to 24h. ``1s`` unless told otherwise."""
    prefix: str | None
    """What every key in Redis begins with. Limiters count together when prefix, policy and key are the same. Allowed: 1 to 64 letters, digits and -._~@:/+=,;!$&'()*|. ``polylimit`` unless told otherwise."""
    db: str | float | None
    """The number of the database; a cluster has only 0. Allowed: 0 to 2147483647. ``0`` unless told otherwise."""
    client_name: str | None
    """The name of the connections, as CLIENT LIST of the server shows it. Allowed: 1 to 64 printable ASCII characters without spaces. ``polylimit`` unless told otherwise."""
    max_in_flight: str | float | None
    """How many decisions may wait for Redis at once. Those beyond are answered by the outage policy, without waiting. Allowed: 1 to 1000000. ``16384`` unless told otherwise."""
    max_outstanding_bytes: str | float | None
    """How many bytes of requests may wait for Redis at once. Those beyond are answered by the outage policy, without waiting. Allowed: 64KiB to 1024MiB. ``16MiB`` unless told otherwise."""
    max_connection_age: str | float | timedelta | None
    """How long a connection is used before another replaces it, so that changed addresses are seen; it is varied at random. Allowed: 0 (never), or 1s to 24h. ``10m`` unless told otherwise."""
    breaker_failures: str | float | None
    """After how many failures in a row Redis is no longer asked, but probed now and then. Allowed: 1 to 1000. ``3`` unless told otherwise."""
    reconnect_min: str | float | timedelta | None
    """The longest wait before the first attempt to connect again; it doubles with each attempt, up to `reconnect_max`. Allowed: 1ms to 60s. ``5ms`` unless told otherwise."""
    reconnect_max: str | float | timedelta | None
    """The longest wait between attempts to connect again; at least `reconnect_min`. Allowed: 1ms to 60s. ``200ms`` unless told otherwise."""
    keepalive: str | float | timedelta | None
    """How long a connection may be silent before the system probes whether the other side is still there. Allowed: 1s to 1h. ``15s`` unless told otherwise."""
    doctor_after: str | float | timedelta | None
    """How long after its first decision a limiter looks at Redis once, in the background: what it sees that keeps limits from being held is told as an event. Of limiters that share connections, the first to be due does so for all. Allowed: 0 (never), or 1ms to 24h. ``1s`` unless told otherwise."""
    topology_refresh: str | float | timedelta | None
    """How often Sentinel is asked for the primary, or a cluster for its slots, when nothing else calls for it; only with Sentinel or a cluster. Allowed: 1s to 1h. ``30s`` unless told otherwise."""
    username: str | None
    """The user to authenticate as; needs a password. It is never shown. Allowed: 1 to 16384 bytes."""
    password: str | None
    """The password to authenticate with; as it is, not percent-encoded as in a URL. It is never shown. Allowed: 1 to 16384 bytes."""
    key_secret: str | None
    """A secret with which the keys that are stored as a hash are hashed, so that nobody can try guesses on what Redis holds; 16 random bytes or more are advised. All processes need the same. It is never shown. Allowed: 1 to 16384 bytes."""
    tls_ca: str | None
    """A PEM file with the certificates to trust, in place of the system's; only with TLS. Allowed: the path of a file."""
    tls_cert: str | None
    """A PEM file with the certificate, and its chain, that the server asks for; needs `tls_key`; only with TLS. Allowed: the path of a file."""
    tls_key: str | None
    """A PEM file with the private key of `tls_cert`; only with TLS. Allowed: the path of a file."""
    tls_server_name: str | None
    """The name that the server's certificate has to hold, in place of the host that is connected to; only with TLS. Allowed: a host name or an IP address."""
    sentinel_username: str | None
    """The user to authenticate as at the sentinels; needs `sentinel_password`; only with Sentinel. It is never shown. Allowed: 1 to 16384 bytes."""
    sentinel_password: str | None
    """The password to authenticate with at the sentinels; only with Sentinel. It is never shown. Allowed: 1 to 16384 bytes."""
    lease: Mapping[str, str] | None
    """Which policies take units ahead from Redis: ``auto``, or such as ``100/500ms``."""

# The end of what document.py writes.

class PolylimitError(Exception):
    """Why no decision could be made. A denial is a value and raises nothing.

    ``code`` is the kind of error, the same text in every language.
    """

    code: str

class InvalidArgumentError(PolylimitError, ValueError):
    """Something that is not allowed was passed; the same input fails again."""

class StoreUnavailableError(PolylimitError):
    """The store could not be reached in time; it may be later."""

class StoreFailedError(PolylimitError):
    """The store was reached and could not decide."""

class ClosedError(PolylimitError):
    """The limiter was closed."""

class InternalError(PolylimitError):
    """A defect in polylimit itself."""

@final
class Limiter:
    """Decides whether requests may proceed.

    A denial is a value and raises nothing: ``if limiter.check("user:42"): ...``

    Parameters
    ----------
    url
        Where the states are kept: ``"memory:"``, ``"local:name"`` for all processes of a host, ``"redis://host:port"``,
        ``"redis-sentinel://..."``, ``"redis-cluster://..."``, and ``rediss`` for TLS.
    policies
        Policies by name: ``{"api": "100/minute; 1000/hour"}``. Quotas may also be given with each request.
    clock
        ``"system"``, ``"coarse"`` or a ``ManualClock``; the server's clock for Redis unless told otherwise.
    on_degraded
        Called with a ``DegradedEvent`` when the limiter begins to decide without its store, when it decides with it again, and
        with what its doctor finds, on the thread of a call. The same is logged as a warning of the logger ``polylimit``.
    options
        Options of the store by name, as ``options()`` lists them: text, numbers, and seconds or a ``timedelta`` for
        durations. ``outage`` may be a dict of policies with their own.

    Raises
    ------
    InvalidArgumentError
        When the URL, a policy or an option is not valid. A store that cannot be reached raises nothing here.
    """
    def __new__(
        cls,
        url: str = "memory:",
        policies: Mapping[str, _Quotas] | None = None,
        *,
        clock: ManualClock | Literal["system", "coarse"] | None = None,
        on_degraded: Callable[[DegradedEvent], object] | None = None,
        **options: Unpack[_Options],
    ) -> Self: ...
    def check(self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None) -> Decision:
        """Decides, and spends the cost from every quota of the policy when all admit it.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def peek(self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None) -> Decision:
        """The decision that a check would give now; leaves no trace.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def take(self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None) -> Usage:
        """Spends as much of the cost as every quota admits, from 0 to the cost; ``taken`` says how much.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def charge(self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None) -> Usage:
        """Spends the cost whether it fits or not, for a cost that is learnt afterwards.

        Use saturates at 8 times each quota's capacity.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def refund(self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None) -> Usage:
        """Gives back up to what is used, the newest first.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def reset(self, key: str | bytes | int, policy: str | Quota | None = None) -> Usage:
        """Forgets the key under its policy."""
    def acquire(
        self,
        key: str | bytes | int,
        policy: str | Quota | None = None,
        *,
        cost: int | None = None,
        timeout: float | timedelta,
    ) -> Decision:
        """Waits until the request is admitted and, in a leaky bucket, until its turn has come.

        Says at once that the timeout cannot be met: then the decision is a denial, and nothing was spent. Those who wait for
        one key under one policy are served in the order in which they came.

        Parameters
        ----------
        timeout
            Seconds or a ``timedelta``; ``math.inf`` waits for as long as it takes.
        """
    @overload
    def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: Literal[False] = False
    ) -> list[Decision]:
        """Checks several requests in one call, of one or more policies. Each is decided on its own, in order.

        Parameters
        ----------
        requests
            Keys, or ``Request`` objects where policy or cost differ.
        return_exceptions
            Whether errors stand in the list, in the place of their decisions. Otherwise the first one is raised.
        """
    @overload
    def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: bool
    ) -> list[Decision | PolylimitError]: ...
    def check_together(self, requests: Iterable[str | bytes | int | Request]) -> list[Decision]:
        """Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
        spent. When one is denied or fails, what the others have spent is given back, and their decisions show what is left.

        Each is decided on its own, so that for a moment others may find units missing that are then given back.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.

        Returns
        -------
        list
            A ``Decision`` for each request, in their order: all are true, or the requests are not admitted.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    def ready(self, timeout: float | timedelta) -> None:
        """Waits until the store answers, at most for ``timeout`` seconds or a ``timedelta``. Nothing needs it; a service that
        starts may want it.

        Raises
        ------
        StoreUnavailableError
            When it does not answer in time.
        """
    def doctor(self) -> list[Finding]:
        """Looks at the store with the eyes of an operator: version, memory policy, rights, latency, clock."""
    def set_policy(self, name: str, quotas: _Quotas) -> None:
        """Registers a policy, or changes the numbers of the one of that name. What was used is kept by every quota whose
        algorithm, period, step and buckets stay.
        """
    def policy(self, policy: str | Quota) -> Policy | None:
        """The policy of that name, or of these quotas if somebody asked for them; ``None`` when there is none."""
    def policy_for(self, policy: str | Quota | None = None, scope: str | None = None) -> Policy:
        """The policy by which a request that names this one, these quotas, or none, is decided, with its current numbers. Its
        ``name`` is what requests may use as their policy from then on.

        Parameters
        ----------
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        scope
            1 to 256 bytes of text, such as ``"/login"``. Quotas without a name get a budget of their own in each scope; a
            policy with a name is shared by all scopes.

        Raises
        ------
        InvalidArgumentError
            When the policy is not known, its quotas cannot be read, none is named and there are several, or the scope is not
            valid.
        ClosedError
            When the limiter was closed.
        """
    def policies(self) -> list[Policy]:
        """All policies, in the order in which they were registered."""
    def stats(self) -> dict[str, int]:
        """What became of the operations so far, by name: counts that only grow."""
    def keys(self) -> int | None:
        """How many keys the memory store or the local one holds a state for; ``None`` for a store elsewhere."""
    def set_credentials(self, password: str, *, username: str | None = None) -> None:
        """Authenticates new connections with another password, and user name if there is one, from now on."""
    @property
    def asynchronous(self) -> AsyncLimiter:
        """The asynchronous face of the same limiter."""
    def close(self) -> None:
        """Ends its use: what comes after it raises ``ClosedError``, and connections are closed. Closing it again does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class AsyncLimiter:
    """Decides whether requests may proceed, in an asyncio event loop.

    The operations are awaited: each starts when it is first awaited, and one whose answer is known at once never waits.

    A denial is a value and raises nothing: ``if limiter.check("user:42"): ...``

    Parameters
    ----------
    url
        Where the states are kept: ``"memory:"``, ``"local:name"`` for all processes of a host, ``"redis://host:port"``,
        ``"redis-sentinel://..."``, ``"redis-cluster://..."``, and ``rediss`` for TLS.
    policies
        Policies by name: ``{"api": "100/minute; 1000/hour"}``. Quotas may also be given with each request.
    clock
        ``"system"``, ``"coarse"`` or a ``ManualClock``; the server's clock for Redis unless told otherwise.
    on_degraded
        Called with a ``DegradedEvent`` when the limiter begins to decide without its store, when it decides with it again, and
        with what its doctor finds, on the thread of a call. The same is logged as a warning of the logger ``polylimit``.
    options
        Options of the store by name, as ``options()`` lists them: text, numbers, and seconds or a ``timedelta`` for
        durations. ``outage`` may be a dict of policies with their own.

    Raises
    ------
    InvalidArgumentError
        When the URL, a policy or an option is not valid. A store that cannot be reached raises nothing here.
    """
    def __new__(
        cls,
        url: str = "memory:",
        policies: Mapping[str, _Quotas] | None = None,
        *,
        clock: ManualClock | Literal["system", "coarse"] | None = None,
        on_degraded: Callable[[DegradedEvent], object] | None = None,
        **options: Unpack[_Options],
    ) -> Self: ...
    def check(
        self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None
    ) -> Coroutine[Any, Any, Decision]:
        """Decides, and spends the cost from every quota of the policy when all admit it.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def peek(
        self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None
    ) -> Coroutine[Any, Any, Decision]:
        """The decision that a check would give now; leaves no trace.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def take(
        self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None
    ) -> Coroutine[Any, Any, Usage]:
        """Spends as much of the cost as every quota admits, from 0 to the cost; ``taken`` says how much.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def charge(
        self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None
    ) -> Coroutine[Any, Any, Usage]:
        """Spends the cost whether it fits or not, for a cost that is learnt afterwards.

        Use saturates at 8 times each quota's capacity.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def refund(
        self, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None
    ) -> Coroutine[Any, Any, Usage]:
        """Gives back up to what is used, the newest first.

        Parameters
        ----------
        key
            Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; 1 unless told otherwise.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def reset(self, key: str | bytes | int, policy: str | Quota | None = None) -> Coroutine[Any, Any, Usage]:
        """Forgets the key under its policy."""
    def acquire(
        self,
        key: str | bytes | int,
        policy: str | Quota | None = None,
        *,
        cost: int | None = None,
        timeout: float | timedelta,
    ) -> Coroutine[Any, Any, Decision]:
        """Waits until the request is admitted and, in a leaky bucket, until its turn has come.

        Says at once that the timeout cannot be met: then the decision is a denial, and nothing was spent. Those who wait for
        one key under one policy are served in the order in which they came.

        Parameters
        ----------
        timeout
            Seconds or a ``timedelta``; ``math.inf`` waits for as long as it takes.
        """
    @overload
    def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: Literal[False] = False
    ) -> Coroutine[Any, Any, list[Decision]]:
        """Checks several requests in one call, of one or more policies. Each is decided on its own, in order.

        Parameters
        ----------
        requests
            Keys, or ``Request`` objects where policy or cost differ.
        return_exceptions
            Whether errors stand in the list, in the place of their decisions. Otherwise the first one is raised.
        """
    @overload
    def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: bool
    ) -> Coroutine[Any, Any, list[Decision | PolylimitError]]: ...
    def check_together(self, requests: Iterable[str | bytes | int | Request]) -> Coroutine[Any, Any, list[Decision]]:
        """Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
        spent. When one is denied or fails, what the others have spent is given back, and their decisions show what is left.

        Each is decided on its own, so that for a moment others may find units missing that are then given back.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.

        Returns
        -------
        list
            A ``Decision`` for each request, in their order: all are true, or the requests are not admitted.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    def ready(self, timeout: float | timedelta) -> Coroutine[Any, Any, None]:
        """Waits until the store answers, at most for ``timeout`` seconds or a ``timedelta``. Nothing needs it; a service that
        starts may want it.

        Raises
        ------
        StoreUnavailableError
            When it does not answer in time.
        """
    def doctor(self) -> Coroutine[Any, Any, list[Finding]]:
        """Looks at the store with the eyes of an operator: version, memory policy, rights, latency, clock."""
    def set_policy(self, name: str, quotas: _Quotas) -> None:
        """Registers a policy, or changes the numbers of the one of that name. What was used is kept by every quota whose
        algorithm, period, step and buckets stay.
        """
    def policy(self, policy: str | Quota) -> Policy | None:
        """The policy of that name, or of these quotas if somebody asked for them; ``None`` when there is none."""
    def policy_for(self, policy: str | Quota | None = None, scope: str | None = None) -> Policy:
        """The policy by which a request that names this one, these quotas, or none, is decided, with its current numbers. Its
        ``name`` is what requests may use as their policy from then on.

        Parameters
        ----------
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        scope
            1 to 256 bytes of text, such as ``"/login"``. Quotas without a name get a budget of their own in each scope; a
            policy with a name is shared by all scopes.

        Raises
        ------
        InvalidArgumentError
            When the policy is not known, its quotas cannot be read, none is named and there are several, or the scope is not
            valid.
        ClosedError
            When the limiter was closed.
        """
    def policies(self) -> list[Policy]:
        """All policies, in the order in which they were registered."""
    def stats(self) -> dict[str, int]:
        """What became of the operations so far, by name: counts that only grow."""
    def keys(self) -> int | None:
        """How many keys the memory store or the local one holds a state for; ``None`` for a store elsewhere."""
    def set_credentials(self, password: str, *, username: str | None = None) -> None:
        """Authenticates new connections with another password, and user name if there is one, from now on."""
    @property
    def blocking(self) -> Limiter:
        """The synchronous face of the same limiter."""
    def close(self) -> Coroutine[Any, Any, None]:
        """Ends its use, at once: what comes after it raises ``ClosedError``, and connections are closed. Closing it again does
        nothing. There is nothing to await, and awaiting it does no harm.
        """
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(self, *_exception: object) -> Coroutine[Any, Any, None]: ...
    def __reduce__(self) -> NoReturn: ...

@final
class Operation(Coroutine[Any, Any, Any]):
    """An operation under way: await it."""
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any:
        """Goes on until the operation waits or is over; for event loops."""
    def throw(self, *exception: Any) -> Any:
        """Ends the waiting with an exception; for event loops. What was sent to a store is counted all the same."""
    def close(self) -> None:
        """Gives up waiting."""
    def __bool__(self) -> NoReturn: ...

@final
class Decision:
    """The answer to a check, a peek or an acquire; true when the request is allowed."""
    @property
    def allowed(self) -> bool:
        """Whether every quota of the policy admits the request."""
    @property
    def remaining(self) -> int:
        """Whole units that can still be spent right now, after this decision: the least over the quotas."""
    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request, alone, would be admitted: exactly then, and not earlier. 0 when allowed; ``None``
        is never: the cost exceeds what a quota can ever admit.
        """
    @property
    def retry_after_us(self) -> int | None:
        """``retry_after`` in whole microseconds, exact."""
    @property
    def reset_after(self) -> float:
        """Seconds until nothing counts as used any more if nothing else arrives: the longest over the quotas."""
    @property
    def reset_after_us(self) -> int:
        """``reset_after`` in whole microseconds, exact."""
    @property
    def delay(self) -> float:
        """Seconds that this admitted request has to wait for its turn: leaky bucket only, otherwise 0."""
    @property
    def delay_us(self) -> int:
        """``delay`` in whole microseconds, exact."""
    @property
    def source(self) -> str:
        """Where the answer came from, such as ``"store"``, or ``"fallback"`` while the store could not be asked."""
    @property
    def degraded(self) -> str | None:
        """Why this is not what a healthy store would have answered for this key alone, such as ``"timeout"``; ``None`` when
        it is.
        """
    @property
    def quotas(self) -> tuple[QuotaUsage, ...]:
        """Each quota's own view, in the policy's order."""
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Usage:
    """The answer to a take, a charge, a refund or a reset: what is left after it."""
    @property
    def remaining(self) -> int:
        """Whole units that can still be spent right now: the least over the quotas."""
    @property
    def reset_after(self) -> float:
        """Seconds until nothing counts as used any more if nothing else arrives: the longest over the quotas."""
    @property
    def reset_after_us(self) -> int:
        """``reset_after`` in whole microseconds, exact."""
    @property
    def taken(self) -> int:
        """The units that a take has spent from every quota, from 0 to its cost; 0 for every other operation."""
    @property
    def source(self) -> str:
        """Where the answer came from, such as ``"store"``, or ``"fallback"`` while the store could not be asked."""
    @property
    def degraded(self) -> str | None:
        """Why this is not what a healthy store would have answered for this key alone; ``None`` when it is."""
    @property
    def quotas(self) -> tuple[QuotaUsage, ...]:
        """Each quota's own view, in the policy's order."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class QuotaUsage:
    """One quota's own view of a key, after the operation."""
    @property
    def limit(self) -> int:
        """The quota's limit, in units per period."""
    @property
    def remaining(self) -> int:
        """Whole units that this quota would still admit right now."""
    @property
    def reset_after(self) -> float:
        """Seconds until nothing counts as used under this quota if nothing else arrives."""
    @property
    def reset_after_us(self) -> int:
        """``reset_after`` in whole microseconds, exact."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Quota:
    """At most ``limit`` units per ``period``, counted by an algorithm.

    ``Quota("100/minute")`` reads the text form; ``Quota(100, 60)`` or ``Quota(100, timedelta(minutes=1))`` makes one of
    numbers. ``str(quota)`` is the text form again.

    Parameters
    ----------
    limit
        The text form, or units per period from 0 to 10**12; 0 admits nothing.
    period
        Seconds or a ``timedelta``, from 1 ms to 366 days, in whole microseconds.
    algorithm
        ``"sliding_window"`` (the default), ``"token_bucket"``, ``"leaky_bucket"``, ``"fixed_window"`` or ``"sliding_log"``.
    burst
        The capacity of the two buckets in units, from 1 to 10**12; ``limit`` unless told otherwise.
    step
        Token bucket only: tokens arrive so many at a time.
    buckets
        Sliding window only: into how many sub-windows the period is cut, from 1 to 60.
    aligned
        Fixed window only: windows start at multiples of the period since the Unix epoch.
    count_denied
        Denied requests are charged too.

    Raises
    ------
    InvalidArgumentError
        When a number is out of bounds or a setting does not belong to the algorithm.
    """
    @overload
    def __new__(cls, limit: str, period: None = None) -> Self: ...
    @overload
    def __new__(
        cls,
        limit: int,
        period: float | timedelta,
        *,
        algorithm: _Algorithm | None = None,
        burst: int | None = None,
        step: int | None = None,
        buckets: int | None = None,
        aligned: bool | None = None,
        count_denied: bool | None = None,
    ) -> Self: ...
    @property
    def limit(self) -> int:
        """Units per period."""
    @property
    def period(self) -> float:
        """The period in seconds."""
    @property
    def algorithm(self) -> _Algorithm:
        """The name of the algorithm."""
    @property
    def capacity(self) -> int:
        """The most units that can be spent at once."""
    @property
    def step(self) -> int | None:
        """How many tokens a stepped token bucket gets at a time; ``None`` for every other quota."""
    @property
    def buckets(self) -> int | None:
        """How many sub-windows a sliding window has; ``None`` for every other algorithm."""
    @property
    def aligned(self) -> bool:
        """Whether a fixed window starts at multiples of the period since the Unix epoch."""
    @property
    def count_denied(self) -> bool:
        """Whether denied requests are charged too."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class Policy:
    """A named list of one or more quotas: a request is admitted by all of them, or nothing is taken from any.

    Parameters
    ----------
    name
        1 to 64 letters, digits and ``!#$%&'*+-.^_`|~``.
    quotas
        Text such as ``"10/s; 1000/h"``, a ``Quota``, or a list of either; 1 to 16 quotas.

    Raises
    ------
    InvalidArgumentError
        When the name or a quota is not valid, or two quotas cannot be told apart.
    """
    def __new__(cls, name: str, quotas: _Quotas) -> Self: ...
    @property
    def name(self) -> str:
        """The name."""
    @property
    def quotas(self) -> tuple[Quota, ...]:
        """The quotas, in the order in which they were given."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Request:
    """A key, the policy that is applied to it, and the units that the request spends; for ``check_many``.

    Parameters
    ----------
    key
        Whom or what the policy is applied to: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    policy
        A policy's name, or quotas; it may be left out where the limiter has one policy.
    cost
        Units, from 0 to 10**12.
    """
    def __new__(cls, key: str | bytes | int, policy: str | Quota | None = None, *, cost: int | None = None) -> Self: ...
    @property
    def key(self) -> str | bytes | int:
        """Whom or what the policy is applied to."""
    @property
    def policy(self) -> str | Quota | None:
        """The policy's name or quotas, if it was given."""
    @property
    def cost(self) -> int:
        """The units that the request spends."""

@final
class ManualClock:
    """A clock for tests: it stands still until it is set or advanced, and it may go back.

    Parameters
    ----------
    now
        The time that it shows: seconds since the Unix epoch, or a ``timedelta`` since then, up to the year 2255.

    Raises
    ------
    InvalidArgumentError
        When the time is beyond what it can show.
    """
    def __new__(cls, now: float | timedelta) -> Self: ...
    @property
    def now(self) -> float:
        """The time it shows, in seconds since the Unix epoch."""
    @property
    def now_us(self) -> int:
        """The time it shows, in whole microseconds since the Unix epoch: exact."""
    def set(self, now: float | timedelta) -> None:
        """Sets the time, in seconds since the Unix epoch or as a ``timedelta`` since then; it may go back."""
    def advance(self, by: float | timedelta) -> None:
        """Moves the time forward, by seconds or a ``timedelta``."""

@final
class DegradedEvent:
    """What a limiter tells its operators: that it decides without its store, or with it again, or what is wrong with the store.

    Its text is the line that is logged. It holds no key, password or URL.
    """
    @property
    def kind(self) -> Literal["started", "ended", "finding"]:
        """What has happened: ``"started"``, ``"ended"`` or ``"finding"``."""
    @property
    def reason(self) -> str | None:
        """Why the first decision was made without the store, such as ``"timeout"``; ``None`` for a finding."""
    @property
    def lasted(self) -> float:
        """Seconds from the first decision that was made without the store to the last one; 0 unless it has ended."""
    @property
    def decisions(self) -> int:
        """How many decisions were made without the store; 0 unless it has ended."""
    @property
    def finding(self) -> Finding | None:
        """What the doctor has found; ``None`` for anything else."""
    @property
    def severity(self) -> Literal["fine", "advice", "problem"]:
        """How much it matters: ``"fine"`` when it is over, otherwise ``"advice"`` or ``"problem"``."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Finding:
    """Something of the store that was looked at: what was found, and what to do about it."""
    @property
    def severity(self) -> Literal["fine", "advice", "problem"]:
        """How much it matters: ``"fine"``, ``"advice"`` or ``"problem"``."""
    @property
    def subject(self) -> str:
        """What was looked at, such as ``"version"`` or ``"rights"``."""
    @property
    def message(self) -> str:
        """What was found, and what to do about it. Holds no password and no key."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Option:
    """An option of a limiter."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def about(self) -> str:
        """What it is for."""
    @property
    def allowed(self) -> str:
        """Which values it may have."""
    @property
    def default(self) -> str | None:
        """The value that it has unless told otherwise, as text; ``None`` when there is none."""
    @property
    def secret(self) -> bool:
        """Whether its value is a secret that is never shown."""
    @property
    def kind(self) -> Literal["duration", "number", "text"]:
        """What its values are: ``"duration"``, ``"number"`` or ``"text"``."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Problem:
    """What to answer to a denied request: a problem document (RFC 9457), or its text."""
    @property
    def status(self) -> int:
        """The status of the response: 429, or 503 when the denial comes from an outage."""
    @property
    def title(self) -> str:
        """What the problem type says in words."""
    @property
    def detail(self) -> str:
        """What a person can do about this denial: one sentence."""
    @property
    def violated(self) -> list[str]:
        """The quotas that were exceeded, by their names in ``ratelimit-policy``."""
    @property
    def json(self) -> str:
        """The problem document."""
    @property
    def text(self) -> str:
        """The detail and an end of line, for clients that read text."""
    def body(self, accept: str | None = None) -> tuple[str, str]:
        """The content type and the body that a client with this ``Accept`` field prefers; without one, the problem document."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class ClientAddressRules:
    """Who is trusted to say for whom a request was forwarded, and how much of an address is counted as one client.

    Parameters
    ----------
    trusted
        The networks of the proxies: addresses, networks such as ``"10.0.0.0/8"``, and the names ``"loopback"``,
        ``"link-local"`` and ``"private"``. Nobody unless told otherwise: then the other end of the socket is the client.
    header
        The one header that they write: ``"x-forwarded-for"`` or ``"forwarded"``.
    ipv4_prefix, ipv6_prefix
        How many leading bits of an address are counted as one client; 32 and 64 unless told otherwise.

    Raises
    ------
    InvalidArgumentError
        When a network is none, a prefix is out of range, or networks are trusted without a header.
    """
    def __new__(
        cls,
        trusted: Sequence[str] = (),
        header: str | None = None,
        *,
        ipv4_prefix: int | None = None,
        ipv6_prefix: int | None = None,
    ) -> Self: ...
    @property
    def header(self) -> str | None:
        """The header whose lines ``resolve`` needs; ``None`` if nobody is trusted to write one."""
    def resolve(self, peer: str, lines: Sequence[bytes] = ()) -> ClientAddress:
        """The client of a request that came from ``peer`` with these lines of the header, in the order they were received.

        ``peer`` is the other end of the socket; for a Unix socket, ``"127.0.0.1"``.
        """
    def key(self, peer: str, lines: Sequence[bytes] = ()) -> str:
        """What to limit a request by whatever text stands for its peer: the ``key`` of what ``resolve`` gives.

        A port, brackets and a zone are left out. Text that is no address is counted by ``"unknown"``, whatever it is, and
        no line is read then.
        """

@final
class ClientAddress:
    """The address of a client, and what it is counted by."""
    @property
    def address(self) -> str:
        """The exact address."""
    @property
    def key(self) -> str:
        """What to limit by: one text for all addresses that are counted together, such as ``2001:db8:1:2::/64``."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def header_fields(
    outcomes: Sequence[tuple[Policy, Decision]],
    *,
    style: str = "ietf",
    reset_form: str = "seconds",
) -> list[tuple[str, str]]:
    """The fields of the response to a request, as pairs of a lower-case name and a value.

    Parameters
    ----------
    outcomes
        Pairs of a policy and what it decided about the request.
    style
        ``"ietf"`` for ``ratelimit`` and ``ratelimit-policy``, ``"legacy"`` for ``x-ratelimit-*``, ``"both"`` or ``"none"``.
        A denial has ``retry-after`` in any style, unless it is for ever.
    reset_form
        How ``x-ratelimit-reset`` tells a time: ``"seconds"`` from now, or since the ``"epoch"``.
    """

def problem(outcomes: Sequence[tuple[Policy, Decision]], *, cost: int | None = None) -> Problem | None:
    """What to answer to a request that was denied by at least one of these policies; ``None`` when all admit it.

    Parameters
    ----------
    outcomes
        Pairs of a policy and what it decided about the request.
    cost
        The units that the request asked for.
    """

def options() -> list[Option]:
    """Every option of a limiter that is given by its name."""

# For the integrations of this package alone.

def suggestion(name: str) -> str | None:
    """What to use in place of an option of another rate limiter, such as ``"use key"`` for ``key_func``."""

def refunded(decision: Decision, usage: Usage) -> Decision:
    """A decision whose units were given back, with what is left by now."""

@final
class PlainGuard:
    """One policy of a limiter, applied to every request at the same cost."""
    @staticmethod
    def of(
        guard: Any,
        limiter: Any,
        policy: str | Quota | None,
        cost: Any,
        rules: ClientAddressRules | None,
        style: str,
    ) -> PlainGuard | None:
        """What a guard asks of every request alike; ``None`` when its options are of a kind that is left to Python."""
    def of_peer(self, peer: str | None) -> Passed:
        """Checks a request that came from a peer, whose address is the client's; ``None`` is a Unix socket."""
    def of_key(self, key: str | bytes | int) -> Passed:
        """Checks a request that counts for a key."""

@final
class Passed:
    """What a plain guard decided about one request."""

    outcomes: Any
    @property
    def is_waiting(self) -> bool:
        """Whether the store has to be waited for."""
    @property
    def allowed(self) -> bool:
        """Whether the request may proceed."""
    @property
    def decision(self) -> Decision: ...
    @property
    def key(self) -> bytes: ...
    @property
    def guard(self) -> Any:
        """The guard that this request passed."""
    def ask(self) -> Coroutine[Any, Any, Decision]:
        """Asks the store, for those who await it."""
    def note(self, decision: Decision) -> None:
        """Notes what the store answered."""
    def wait(self) -> None:
        """Waits for the store on this thread."""
    def sender(self, send: Callable[[Any], Any]) -> Sender:
        """What the response is sent through."""
    def add_to(self, headers: Any) -> None:
        """Puts the fields into Werkzeug's headers of a response, in the places of those that have the same names."""

@final
class Sender:
    """Adds the fields to a response when it starts. What it returns is what the next one returns, so that it adds no step to
    what is awaited.
    """
    def __new__(cls, send: Callable[[Any], Any], outcomes: Any) -> Self: ...
    @property
    def has_started(self) -> bool: ...
    def __call__(self, message: Any) -> Any: ...
