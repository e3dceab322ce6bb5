import builtins
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, MutableMapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, NoReturn, Protocol, SupportsIndex, TypeAlias, TypedDict, final, overload
from uuid import UUID

from typing_extensions import Self, Unpack

from polylimit.reports import KeyExplanation, KeyPage, RequestExplanation, ResetPage, TopKeys

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncLimiter",
    "AsyncReservation",
    "Attempts",
    "Backoff",
    "CandidateCounts",
    "ClientAddress",
    "ClientAddressRules",
    "ClosedError",
    "ConfigurationStatus",
    "CoreGuard",
    "Decision",
    "DegradedEvent",
    "Finding",
    "GuardCheck",
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
    "ResponseSender",
    "Settling",
    "StoreCall",
    "StoreFailedError",
    "StoreUnavailableError",
    "Throttle",
    "TrioCall",
    "Usage",
    "_CredentialsServer",
    "__version__",
    "advice",
    "header_fields",
    "options",
    "problem",
    "server_wait",
]

__version__: str

_Key: TypeAlias = str | bytes | SupportsIndex | UUID
_Policy: TypeAlias = str | Quota | Policy
_Quotas: TypeAlias = str | Quota | Policy | Sequence[str | Quota]
_Algorithm: TypeAlias = Literal["sliding_window", "token_bucket", "leaky_bucket", "fixed_window", "sliding_log"]

_Outage: TypeAlias = Literal["fallback", "allow", "deny"]
_Text: TypeAlias = str | bytes

class _HasItems(Protocol):
    def items(self) -> Iterable[tuple[_Text, _Text]]: ...

_Headers: TypeAlias = _HasItems | Iterable[tuple[_Text, _Text]]
_Value: TypeAlias = str | bytes | SupportsIndex | UUID
_Cause: TypeAlias = Literal["off", "allow_list", "deny_list", "missing_key", "blocked", "quota", "concurrency"]

class _Options(TypedDict, total=False):
    max_keys: str | float | None
    """The maximum number of keys in this process, over all policies. Allowed: 1 or more. Default: ``1000000``."""
    observe_keys: str | float | None
    """How many keys are counted, to show which are denied and admitted most often. Allowed: 0 (none) to 65536. Default: ``0``."""
    report: str | None
    """How often the process reports its counts to the others that share its Redis; by default never. Allowed: 1s to 1h."""
    local_size: str | None
    """The size of a local store in bytes when it is created. An existing one must have that size. Allowed: 1MiB to 64GiB. Default: ``16MiB``."""
    configuration: str | None
    """Where the limits come from, if they are a configuration: file:PATH is a document in TOML or JSON, store a document and entries in Redis, store+file:PATH a document in a file with entries in Redis. Allowed: file:PATH, store or store+file:PATH."""
    copy: str | None
    """A file to which the configuration is written after each change, and from which it is read when the limiter is made: so a process starts while Redis is away. Only with `configuration`. Allowed: the path of a file."""
    deadline: str | float | timedelta | None
    """How long a decision may take, including queueing, connecting, sending and waiting for the reply. After that the outage policy answers. Allowed: 1ms to 60s. Default: ``50ms``."""
    outage: _Outage | Mapping[str, _Outage] | None
    """What a policy answers while Redis is unavailable, unless the policy has its own outage policy. Allowed: fallback, allow or deny. Default: ``fallback``."""
    fallback_share: str | float | None
    """Which part of each limit this process admits on its own while Redis is unavailable and the outage policy is fallback, rounded down: a part of less than one unit admits nothing. One divided by the number of processes keeps their sum within the limit. A number in code is rounded to 6 decimals. Allowed: more than 0, up to 1, with at most 6 decimals. Default: ``1``."""
    first_connect_max: str | float | timedelta | None
    """How long the first decisions of a process, or of another runtime or event loop in it, wait for the first connection before the outage policy answers; then they have their deadline. The wait ends immediately if Redis refuses or fails. Allowed: 0 (no longer than the deadline), or 1ms to 60s. Default: ``1s``."""
    denial_cache_max: str | float | timedelta | None
    """How long a key that Redis has denied may be denied without calling Redis again, and never longer than Redis would. It ends immediately when this process returns units, and when the server announces that another process did; if the announcement is lost, after this time at the latest. Allowed: 0 (never), or 1ms to 24h. Default: ``1s``."""
    prefix: str | None
    """The beginning of every key in Redis. Limiters count together if prefix, policy and key are the same. Allowed: 1 to 64 letters, digits and -._~@:/+=,;!$&'()*|. Default: ``polylimit``."""
    db: str | float | None
    """The number of the database; a cluster has only 0. Allowed: 0 to 2147483647. Default: ``0``."""
    client_name: str | None
    """The name of the connections, as shown by CLIENT LIST on the server. Allowed: 1 to 64 printable ASCII characters without spaces. Default: ``polylimit``."""
    max_in_flight: str | float | None
    """How many decisions may wait for Redis at once. The outage policy answers those beyond, without waiting. Allowed: 1 to 1000000. Default: ``16384``."""
    max_outstanding_bytes: str | float | None
    """How many bytes of requests may wait for Redis at once. The outage policy answers those beyond, without waiting. Allowed: 64KiB to 1024MiB. Default: ``16MiB``."""
    max_connection_age: str | float | timedelta | None
    """How long a connection is used before another replaces it, so that changed addresses are noticed; varied at random. It stays in use until the other one is open. Allowed: 0 (never), or 1s to 24h. Default: ``10m``."""
    breaker_failures: str | float | None
    """After how many consecutive failures Redis is no longer called, but probed occasionally. Allowed: 1 to 1000. Default: ``3``."""
    reconnect_min: str | float | timedelta | None
    """The longest wait before the first attempt to reconnect; it doubles with each attempt, up to `reconnect_max`. Allowed: 1ms to 60s. Default: ``5ms``."""
    reconnect_max: str | float | timedelta | None
    """The longest wait between attempts to reconnect; at least `reconnect_min`. Allowed: 1ms to 60s. Default: ``200ms``."""
    keepalive: str | float | timedelta | None
    """How long a connection may be idle before the system probes whether the other side is still there. Allowed: 1s to 1h. Default: ``15s``."""
    doctor_after: str | float | timedelta | None
    """How long after its first decision a limiter examines Redis once, in the background: findings that make limits unreliable are reported as events. Of limiters that share connections, the first one examines for all. Allowed: 0 (never), or 1ms to 24h. Default: ``1s``."""
    module: str | None
    """Whether polylimit's module decides on servers that have it. On all others, and for what it does not decide, scripts do. Allowed: true or false. Default: ``true``."""
    topology_refresh: str | float | timedelta | None
    """How often Sentinel is polled for the primary, or a cluster for its slots, when nothing else triggers it; only with Sentinel or a cluster. Allowed: 1s to 1h. Default: ``30s``."""
    address_map: str | None
    """Where to reach the addresses that a cluster or Sentinel announces, if they are not reachable themselves: behind NAT or forwarded ports. A host without a port stands for all of its ports. Only with Sentinel or a cluster. Allowed: pairs announced=reached with commas between them, each a host or host:port; an announced address once."""
    username: str | None
    """The user to authenticate as; needs a password. It is never shown. Allowed: 1 to 16384 bytes."""
    password: str | None
    """The password to authenticate with; plain, not percent-encoded as in a URL. It is never shown. Allowed: 1 to 16384 bytes."""
    password_file: str | None
    """A file that holds the password, without its trailing line end, in place of `password`: it is read for each new connection, and again when the server refuses the password. Allowed: the path of a file."""
    password_command: str | None
    """A program whose output is the password, in place of `password`, such as one that creates a cloud token: it is run, without a shell and for at most 10 seconds, for each new connection, and again when the server refuses the password. Allowed: a program and its arguments, with spaces between them; at most 4096 bytes."""
    key_secret: str | None
    """A secret for hashing the keys that are stored as a hash, so that the hashes in Redis cannot be compared with those of guessed keys; use 16 random bytes or more. All processes need the same. It is never shown. Allowed: 1 to 16384 bytes."""
    tls_ca: str | None
    """A PEM file with the certificates to trust, in place of the system's: those of authorities, and self-signed server certificates, for any name; only with TLS. Allowed: the path of a file."""
    tls_fingerprint: str | None
    """The SHA-256 of the server's certificate, as printed by `openssl x509 -fingerprint -sha256`, in place of an authority: a server with one of these certificates is trusted, whatever its name and its dates; only with TLS. Allowed: 1 to 8 fingerprints of 64 hexadecimal digits, with commas between them."""
    tls_insecure: str | None
    """Whether any certificate is accepted, for development only: then anything on the path to the server can read and change everything that is sent. An event and the doctor report it; only with TLS. Allowed: true or false. Default: ``false``."""
    tls_cert: str | None
    """A PEM file with the certificate, and its chain, that the server requires; needs `tls_key`; only with TLS. Allowed: the path of a file."""
    tls_key: str | None
    """A PEM file with the private key of `tls_cert`; only with TLS. Allowed: the path of a file."""
    tls_server_name: str | None
    """The name that the server's certificate must have, in place of the host in the URL; only with TLS. Allowed: a host name or an IP address."""
    sentinel_username: str | None
    """The user to authenticate as with the sentinels; needs a password for them; only with Sentinel. It is never shown. Allowed: 1 to 16384 bytes."""
    sentinel_password: str | None
    """The password to authenticate with at the sentinels; only with Sentinel. It is never shown. Allowed: 1 to 16384 bytes."""
    sentinel_password_file: str | None
    """A file that holds the password for the sentinels, in place of `sentinel_password`: it is read like `password_file`; only with Sentinel. Allowed: the path of a file."""
    sentinel_password_command: str | None
    """A program whose output is the password for the sentinels, in place of `sentinel_password`: it is run like `password_command`, and for each sentinel; only with Sentinel. Allowed: a program and its arguments, with spaces between them; at most 4096 bytes."""
    lease: Mapping[str, str] | None
    """The policies that lease units from Redis: ``auto``, or such as ``100/500ms``."""

# The end of the generated part.

class PolylimitError(Exception):
    """Raised when no decision could be made. A denial is a value and raises nothing.

    ``code`` is the kind of error, the same text in every language.
    """

    code: str

class InvalidArgumentError(PolylimitError, ValueError):
    """An argument is not valid; the same arguments fail again."""

class StoreUnavailableError(PolylimitError):
    """The store could not be reached in time; a later call may succeed."""

class StoreFailedError(PolylimitError):
    """The store was reached and could not decide."""

class ClosedError(PolylimitError):
    """The limiter was closed."""

class InternalError(PolylimitError):
    """A defect in polylimit itself."""

@final
class _CredentialsServer:
    def serve(self) -> None:
        """Waits for calls and answers them until the limiter is gone."""

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
    document
        A configuration with policies, rules and lists, in place of ``policies``: its text, in TOML or JSON, or a dict.
        ``admin().set_document`` replaces it.
    clock
        ``"system"``, ``"coarse"`` or a ``ManualClock``. By default Redis uses the clock of its server.
    on_degraded
        Called with a ``DegradedEvent`` when the limiter begins to decide without its store, when it decides with its store
        again, and for each problem that its doctor finds, on the thread of a later call. The logger ``polylimit`` gets the same
        events as warnings.
    credentials
        A function without arguments that gives the password for each new connection to Redis, or a tuple of user and password, in
        place of those in the URL: for tokens that expire. It is called on a thread of its own, and again when the server refuses what
        it gave, then not for 0.25 to 10 seconds, growing with each time in a row. It may block: decisions keep their deadline. An
        exception is the cause in ``ready``, the events and the doctor. ``admin().set_credentials`` replaces it.
    options
        Options of the store by name, as ``options()`` lists them: text, numbers, and seconds or a ``timedelta`` for
        durations. ``outage`` may be a dict of policy names and their outage policies.

    Raises
    ------
    InvalidArgumentError
        When the URL, a policy or an option is not valid. An unreachable store raises nothing here.
    """
    def __new__(
        cls,
        url: str = "memory:",
        policies: Mapping[str, _Quotas] | Sequence[Policy] | None = None,
        *,
        document: str | Mapping[str, Any] | None = None,
        clock: ManualClock | Literal["system", "coarse"] | None = None,
        on_degraded: Callable[[DegradedEvent], object] | None = None,
        credentials: Callable[[], str | tuple[str | None, str]] | None = None,
        **options: Unpack[_Options],
    ) -> Self: ...
    def check(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Decision:
        """Decides, and spends the cost from every quota of the policy when all admit it.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        headroom
            The part of each quota that the request leaves for others, in percent from 0 to 99, rounded up to whole units; the default is
            0. So less important requests are denied first.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy, the cost or the headroom is not valid.
        ClosedError
            When the limiter was closed.
        """
    def peek(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Decision:
        """The decision that a check would make now; changes nothing.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        headroom
            The part of each quota that the request leaves for others, in percent from 0 to 99, rounded up to whole units; the default is
            0. So less important requests are denied first.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy, the cost or the headroom is not valid.
        ClosedError
            When the limiter was closed.
        """
    def take(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Spends as much of the cost as every quota admits, from 0 to the cost; ``taken`` says how much.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def charge(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Spends the cost even where it does not fit, for a cost that is known only afterwards.

        Usage is capped at 8 times the capacity of each quota.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def refund(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Gives back the cost, at most what is used, the most recent units first.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    def reset(self, key: _Key, policy: _Policy | None = None, *, plan: str | None = None) -> Usage:
        """Forgets the usage of the key under the policy."""
    def acquire(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        timeout: float | timedelta,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Decision:
        """Waits until the request is admitted and, in a leaky bucket, until its turn has come.

        If the request cannot be admitted within the timeout, it is denied at once and nothing is spent. Callers that wait for
        the same key under the same policy are served in the order of their arrival.

        Parameters
        ----------
        timeout
            Seconds or a ``timedelta``; ``math.inf`` waits without a limit.
        """
    def reserve(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        id: str | None = None,
        ttl: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
        max_age: float | timedelta | None = None,
        commit_at_end: bool | None = None,
        remember: float | timedelta | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Reservation:
        """Decides as a check does and, when every quota admits the request, sets its cost aside until the returned handle is
        committed, cancelled or forgotten, or until its ttl has passed without a renewal. Nothing is spent before the commit.

        ``with limiter.reserve("tenant:7", cost=4000) as reservation:`` ends it in every case. The handle of a denied request is
        false and raises nothing.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"20 concurrent; 100000/minute"``; it may be left out where the limiter has one policy.
        cost
            Units that are set aside, from 0 to 10**12; the default is 1.
        id
            1 to 64 bytes of text; random by default. A caller that has received no answer repeats the operation with the same id.
        ttl
            How long the reservation lasts after its last renewal, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
            So long its units stay set aside when this process is killed.
        timeout
            How long to wait in line, as in ``acquire``, until the request is admitted; by default it is denied at once.
        max_age
            How long the reservation is renewed in the background, every third of its ttl; the default is one hour, and 0 never renews.
        commit_at_end
            Whether a scope that is left without an error, and a handle that is forgotten, commit what was reserved in place of
            cancelling it.
        remember
            How long after its commit the id is remembered, in seconds or as a ``timedelta``: 1 ms to 48 h; by default it is not. Meanwhile
            nothing more is charged for the id under this key and policy: a commit that is repeated is reported as ``repeated``, and a
            ``reserve``, of a job that runs again, asks for a slot only. A key remembers its 1,000 latest commits.
        headroom
            The part of each quota's units and slots that the request leaves for others, in percent from 0 to 99; the default is 0.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When an argument is not valid, a quota of the policy is a leaky bucket, or the policy is leased.
        ClosedError
            When the limiter was closed.
        """
    def commit(
        self,
        key: _Key,
        id: str,
        *,
        spent: SupportsIndex | None = None,
        policy: _Policy | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Ends the reservation with this id and charges what was spent, as ``charge`` does. The usage's ``found`` is false, and
        nothing is charged, when it has ended before: a repeated commit never charges twice. Where the reservation was made to
        ``remember`` its commit, the usage's ``repeated`` says whether this is a repetition.

        Parameters
        ----------
        spent
            Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
        """
    def cancel(self, key: _Key, id: str, *, policy: _Policy | None = None, plan: str | None = None) -> Usage:
        """Ends the reservation with this id and spends nothing. The usage's ``found`` is false when it has ended before."""
    def renew(
        self,
        key: _Key,
        id: str,
        ttl: float | timedelta,
        *,
        policy: _Policy | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Makes the reservation with this id end ``ttl`` from now. The usage's ``found`` is false when it has ended before.

        Parameters
        ----------
        ttl
            Seconds or a ``timedelta``, from 1 ms to 48 h.
        """
    @overload
    def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: Literal[False] = False
    ) -> list[Decision]:
        """Checks several requests under one or more policies in one call. Each is decided on its own, in order.

        Parameters
        ----------
        requests
            Keys, or ``Request`` objects where the policy or the cost differs.
        return_exceptions
            Whether errors are returned in the list, in the places of their decisions. Otherwise the first one is raised.
        """
    @overload
    def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: bool
    ) -> list[Decision | PolylimitError]: ...
    def check_together(self, requests: Iterable[str | bytes | int | Request]) -> list[Decision]:
        """Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
        spent. When one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are
        one of their sum.

        The store decides all of them in one step. Between slots of a cluster, units are given back within the call, so another caller
        may be denied meanwhile.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.

        Returns
        -------
        list
            A ``Decision`` for each request, in the same order. The requests are admitted if all decisions are true.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    def peek_together(self, requests: Iterable[str | bytes | int | Request]) -> list[Decision]:
        """The decisions that ``check_together`` would make now; changes nothing.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.

        Returns
        -------
        list
            A ``Decision`` for each request, in the same order.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    def reserve_together(
        self,
        requests: Iterable[str | bytes | int | Request],
        *,
        id: str | None = None,
        ttl: float | timedelta | None = None,
        remember: float | timedelta | None = None,
    ) -> RequestReservation:
        """As ``check_together``, but requests under a policy with a quota such as ``"20 concurrent"`` are reserved, all under one id; the
        others spend. When one request is denied, nothing is spent or reserved.

        The caller ends each reservation by the limiter's ``commit`` or ``cancel`` with its key, its policy and this id. They are not renewed in
        the background: ``renew`` makes them last longer.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.
        id
            The id of the reservations: 1 to 64 bytes of text; random by default. A caller that has received no answer repeats the operation
            with the same id.
        ttl
            How long the reservations last, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
        remember
            How long after their commits the id is remembered, as in ``reserve``; by default it is not.

        Returns
        -------
        RequestReservation
            A ``Decision`` for each request, and the id; true when all requests are admitted.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    def ready(self, timeout: float | timedelta) -> None:
        """Waits until the store answers, at most ``timeout``: seconds or a ``timedelta``. A service may call it when it starts; no
        operation needs it.

        Raises
        ------
        StoreUnavailableError
            When the store does not answer in time.
        """
    def decide(
        self,
        attributes: RequestAttributes,
        *,
        id: str | None = None,
        ttl: float | timedelta | None = None,
        remember: float | timedelta | None = None,
    ) -> RequestDecision:
        """Decides about a request by the configuration: its lists, its rules, and the policies that these apply.

        All policies admit the request, or nothing is spent. Policies with a quota such as ``"20 concurrent"`` are reserved: the caller
        commits or cancels them by ``id``. All others spend.

        Parameters
        ----------
        attributes
            What is known of the request.
        id
            The id of the reservations: 1 to 64 bytes of text; random by default.
        ttl
            How long reservations last, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
        remember
            How long after their commits the id is remembered, as in ``reserve``; by default it is not.

        Raises
        ------
        InvalidArgumentError
            When the limiter has no configuration, or the attribute that gives a cost holds none.
        ClosedError
            When the limiter was closed.
        """
    def set_policy(self, name: str, quotas: _Quotas) -> None:
        """Registers a policy, or replaces the quotas of the policy of that name. Usage is kept under every quota whose algorithm,
        period, step and buckets stay the same.
        """
    def policy(self, policy: _Policy) -> Policy | None:
        """The policy of that name, or of these quotas if a request has used them; ``None`` if there is none."""
    def policy_for(self, policy: _Policy | None = None, scope: str | None = None) -> Policy:
        """The policy that decides requests with this argument, with its current quotas. Requests may use its ``name`` as their
        policy from then on.

        Parameters
        ----------
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        scope
            1 to 256 bytes of text, such as ``"/login"``. Quotas without a name have a separate budget in each scope; a policy
            with a name is shared by all scopes.

        Raises
        ------
        InvalidArgumentError
            When the policy is not known, the quotas cannot be read, no policy is given though the limiter has several, or the
            scope is not valid.
        ClosedError
            When the limiter was closed.
        """
    def policies(self) -> list[Policy]:
        """All policies, in the order of their registration."""
    def stats(self) -> dict[str, int]:
        """Counters of the operations so far, by name; they only increase."""
    def metrics(self) -> list[MetricFamily]:
        """What this limiter has decided since it was made, and the state of its store and of its configuration. No key is in
        it. Each family is described in docs/metrics.md; ``polylimit.prometheus`` and ``polylimit.opentelemetry`` hand them
        to a monitoring system.

        The families are always the same; those that do not apply to the limiter have no samples. A forked child counts from
        0. Nothing is sent, and no decision waits.
        """
    def metrics_text(self, format: Literal["prometheus", "openmetrics"] = "prometheus") -> str:
        """The metrics as the text that monitoring systems read.

        Parameters
        ----------
        format
            ``"prometheus"``, whose media type is ``text/plain; version=0.0.4; charset=utf-8``, or ``"openmetrics"``, whose
            media type is ``application/openmetrics-text; version=1.0.0; charset=utf-8``.

        Raises
        ------
        InvalidArgumentError
            When the format is another one.
        """
    def admin(self) -> Admin:
        """The operations for operators: keys of the store, explanations, the policy document, lists."""
    @property
    def asynchronous(self) -> AsyncLimiter:
        """The same limiter as an ``AsyncLimiter``."""
    def close(self) -> None:
        """Closes the limiter and its connections; later operations raise ``ClosedError``. Closing it again does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce__(self) -> NoReturn: ...

@final
class AsyncLimiter:
    """Decides whether requests may proceed, in an asyncio event loop.

    Every operation is awaited. It starts when it is first awaited, and one that needs no waiting never yields to the event loop.

    A denial is a value and raises nothing: ``if await limiter.check("user:42"): ...``

    Parameters
    ----------
    url
        Where the states are kept: ``"memory:"``, ``"local:name"`` for all processes of a host, ``"redis://host:port"``,
        ``"redis-sentinel://..."``, ``"redis-cluster://..."``, and ``rediss`` for TLS.
    policies
        Policies by name: ``{"api": "100/minute; 1000/hour"}``. Quotas may also be given with each request.
    document
        A configuration with policies, rules and lists, in place of ``policies``: its text, in TOML or JSON, or a dict.
        ``admin().set_document`` replaces it.
    clock
        ``"system"``, ``"coarse"`` or a ``ManualClock``. By default Redis uses the clock of its server.
    on_degraded
        Called with a ``DegradedEvent`` when the limiter begins to decide without its store, when it decides with its store
        again, and for each problem that its doctor finds, on the thread of a later call. The logger ``polylimit`` gets the same
        events as warnings.
    credentials
        A function without arguments that gives the password for each new connection to Redis, or a tuple of user and password, in
        place of those in the URL: for tokens that expire. It is called on a thread of its own, and again when the server refuses what
        it gave, then not for 0.25 to 10 seconds, growing with each time in a row. It may block: decisions keep their deadline. An
        exception is the cause in ``ready``, the events and the doctor. ``admin().set_credentials`` replaces it.
    options
        Options of the store by name, as ``options()`` lists them: text, numbers, and seconds or a ``timedelta`` for
        durations. ``outage`` may be a dict of policy names and their outage policies.

    Raises
    ------
    InvalidArgumentError
        When the URL, a policy or an option is not valid. An unreachable store raises nothing here.
    """
    def __new__(
        cls,
        url: str = "memory:",
        policies: Mapping[str, _Quotas] | Sequence[Policy] | None = None,
        *,
        document: str | Mapping[str, Any] | None = None,
        clock: ManualClock | Literal["system", "coarse"] | None = None,
        on_degraded: Callable[[DegradedEvent], object] | None = None,
        credentials: Callable[[], str | tuple[str | None, str]] | None = None,
        **options: Unpack[_Options],
    ) -> Self: ...
    async def check(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Decision:
        """Decides, and spends the cost from every quota of the policy when all admit it.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        headroom
            The part of each quota that the request leaves for others, in percent from 0 to 99, rounded up to whole units; the default is
            0. So less important requests are denied first.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy, the cost or the headroom is not valid.
        ClosedError
            When the limiter was closed.
        """
    async def peek(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Decision:
        """The decision that a check would make now; changes nothing.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        headroom
            The part of each quota that the request leaves for others, in percent from 0 to 99, rounded up to whole units; the default is
            0. So less important requests are denied first.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy, the cost or the headroom is not valid.
        ClosedError
            When the limiter was closed.
        """
    async def take(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Spends as much of the cost as every quota admits, from 0 to the cost; ``taken`` says how much.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    async def charge(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Spends the cost even where it does not fit, for a cost that is known only afterwards.

        Usage is capped at 8 times the capacity of each quota.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    async def refund(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Gives back the cost, at most what is used, the most recent units first.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the cost is not valid.
        ClosedError
            When the limiter was closed.
        """
    async def reset(self, key: _Key, policy: _Policy | None = None, *, plan: str | None = None) -> Usage:
        """Forgets the usage of the key under the policy."""
    async def acquire(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        timeout: float | timedelta,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Decision:
        """Waits until the request is admitted and, in a leaky bucket, until its turn has come.

        If the request cannot be admitted within the timeout, it is denied at once and nothing is spent. Callers that wait for
        the same key under the same policy are served in the order of their arrival.

        Parameters
        ----------
        timeout
            Seconds or a ``timedelta``; ``math.inf`` waits without a limit.
        """
    def reserve(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        id: str | None = None,
        ttl: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
        max_age: float | timedelta | None = None,
        commit_at_end: bool | None = None,
        remember: float | timedelta | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> ReserveOperation:
        """Decides as a check does and, when every quota admits the request, sets its cost aside until the handle is
        committed, cancelled or forgotten, or until its ttl has passed without a renewal. Nothing is spent before the commit.

        ``async with limiter.reserve("tenant:7", cost=4000) as reservation:`` ends it in every case; without a scope,
        ``reservation = await limiter.reserve(...)``. The handle of a denied request is false and raises nothing.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"20 concurrent; 100000/minute"``; it may be left out where the limiter has one policy.
        cost
            Units that are set aside, from 0 to 10**12; the default is 1.
        id
            1 to 64 bytes of text; random by default. A caller that has received no answer repeats the operation with the same id.
        ttl
            How long the reservation lasts after its last renewal, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
            So long its units stay set aside when this process is killed.
        timeout
            How long to wait in line, as in ``acquire``, until the request is admitted; by default it is denied at once.
        max_age
            How long the reservation is renewed in the background, every third of its ttl; the default is one hour, and 0 never renews.
        commit_at_end
            Whether a scope that is left without an error, and a handle that is forgotten, commit what was reserved in place of
            cancelling it.
        remember
            How long after its commit the id is remembered, in seconds or as a ``timedelta``: 1 ms to 48 h; by default it is not. Meanwhile
            nothing more is charged for the id under this key and policy: a commit that is repeated is reported as ``repeated``, and a
            ``reserve``, of a job that runs again, asks for a slot only. A key remembers its 1,000 latest commits.
        headroom
            The part of each quota's units and slots that the request leaves for others, in percent from 0 to 99; the default is 0.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When an argument is not valid, a quota of the policy is a leaky bucket, or the policy is leased.
        ClosedError
            When the limiter was closed.
        """
    async def commit(
        self,
        key: _Key,
        id: str,
        *,
        spent: SupportsIndex | None = None,
        policy: _Policy | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Ends the reservation with this id and charges what was spent, as ``charge`` does. The usage's ``found`` is false, and
        nothing is charged, when it has ended before: a repeated commit never charges twice. Where the reservation was made to
        ``remember`` its commit, the usage's ``repeated`` says whether this is a repetition.

        Parameters
        ----------
        spent
            Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
        """
    async def cancel(self, key: _Key, id: str, *, policy: _Policy | None = None, plan: str | None = None) -> Usage:
        """Ends the reservation with this id and spends nothing. The usage's ``found`` is false when it has ended before."""
    async def renew(
        self,
        key: _Key,
        id: str,
        ttl: float | timedelta,
        *,
        policy: _Policy | None = None,
        plan: str | None = None,
    ) -> Usage:
        """Makes the reservation with this id end ``ttl`` from now. The usage's ``found`` is false when it has ended before.

        Parameters
        ----------
        ttl
            Seconds or a ``timedelta``, from 1 ms to 48 h.
        """
    @overload
    async def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: Literal[False] = False
    ) -> list[Decision]:
        """Checks several requests under one or more policies in one call. Each is decided on its own, in order.

        Parameters
        ----------
        requests
            Keys, or ``Request`` objects where the policy or the cost differs.
        return_exceptions
            Whether errors are returned in the list, in the places of their decisions. Otherwise the first one is raised.
        """
    @overload
    async def check_many(
        self, requests: Iterable[str | bytes | int | Request], *, return_exceptions: bool
    ) -> list[Decision | PolylimitError]: ...
    async def check_together(self, requests: Iterable[str | bytes | int | Request]) -> list[Decision]:
        """Checks several requests that belong together, such as one client under several policies: all are admitted, or nothing is
        spent. When one is denied, the decisions that admit are those of a peek. Requests for the same key under the same policy are
        one of their sum.

        The store decides all of them in one step. Between slots of a cluster, units are given back within the call, so another caller
        may be denied meanwhile.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.

        Returns
        -------
        list
            A ``Decision`` for each request, in the same order. The requests are admitted if all decisions are true.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    async def peek_together(self, requests: Iterable[str | bytes | int | Request]) -> list[Decision]:
        """The decisions that ``check_together`` would make now; changes nothing.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.

        Returns
        -------
        list
            A ``Decision`` for each request, in the same order.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    async def reserve_together(
        self,
        requests: Iterable[str | bytes | int | Request],
        *,
        id: str | None = None,
        ttl: float | timedelta | None = None,
        remember: float | timedelta | None = None,
    ) -> RequestReservation:
        """As ``check_together``, but requests under a policy with a quota such as ``"20 concurrent"`` are reserved, all under one id; the
        others spend. When one request is denied, nothing is spent or reserved.

        The caller ends each reservation by the limiter's ``commit`` or ``cancel`` with its key, its policy and this id. They are not renewed in
        the background: ``renew`` makes them last longer.

        Parameters
        ----------
        requests
            ``Request`` objects, or keys.
        id
            The id of the reservations: 1 to 64 bytes of text; random by default. A caller that has received no answer repeats the operation
            with the same id.
        ttl
            How long the reservations last, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
        remember
            How long after their commits the id is remembered, as in ``reserve``; by default it is not.

        Returns
        -------
        RequestReservation
            A ``Decision`` for each request, and the id; true when all requests are admitted.

        Raises
        ------
        PolylimitError
            The first error of any request.
        """
    async def ready(self, timeout: float | timedelta) -> None:
        """Waits until the store answers, at most ``timeout``: seconds or a ``timedelta``. A service may call it when it starts; no
        operation needs it.

        Raises
        ------
        StoreUnavailableError
            When the store does not answer in time.
        """
    async def decide(
        self,
        attributes: RequestAttributes,
        *,
        id: str | None = None,
        ttl: float | timedelta | None = None,
        remember: float | timedelta | None = None,
    ) -> RequestDecision:
        """Decides about a request by the configuration: its lists, its rules, and the policies that these apply.

        All policies admit the request, or nothing is spent. Policies with a quota such as ``"20 concurrent"`` are reserved: the caller
        commits or cancels them by ``id``. All others spend.

        Parameters
        ----------
        attributes
            What is known of the request.
        id
            The id of the reservations: 1 to 64 bytes of text; random by default.
        ttl
            How long reservations last, in seconds or as a ``timedelta``: 1 ms to 48 h; the default is 30 s.
        remember
            How long after their commits the id is remembered, as in ``reserve``; by default it is not.

        Raises
        ------
        InvalidArgumentError
            When the limiter has no configuration, or the attribute that gives a cost holds none.
        ClosedError
            When the limiter was closed.
        """
    def set_policy(self, name: str, quotas: _Quotas) -> None:
        """Registers a policy, or replaces the quotas of the policy of that name. Usage is kept under every quota whose algorithm,
        period, step and buckets stay the same.
        """
    def policy(self, policy: _Policy) -> Policy | None:
        """The policy of that name, or of these quotas if a request has used them; ``None`` if there is none."""
    def policy_for(self, policy: _Policy | None = None, scope: str | None = None) -> Policy:
        """The policy that decides requests with this argument, with its current quotas. Requests may use its ``name`` as their
        policy from then on.

        Parameters
        ----------
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        scope
            1 to 256 bytes of text, such as ``"/login"``. Quotas without a name have a separate budget in each scope; a policy
            with a name is shared by all scopes.

        Raises
        ------
        InvalidArgumentError
            When the policy is not known, the quotas cannot be read, no policy is given though the limiter has several, or the
            scope is not valid.
        ClosedError
            When the limiter was closed.
        """
    def policies(self) -> list[Policy]:
        """All policies, in the order of their registration."""
    def stats(self) -> dict[str, int]:
        """Counters of the operations so far, by name; they only increase."""
    def metrics(self) -> list[MetricFamily]:
        """What this limiter has decided since it was made, and the state of its store and of its configuration. No key is in
        it. Each family is described in docs/metrics.md; ``polylimit.prometheus`` and ``polylimit.opentelemetry`` hand them
        to a monitoring system.

        The families are always the same; those that do not apply to the limiter have no samples. A forked child counts from
        0. Nothing is sent, and no decision waits.
        """
    def metrics_text(self, format: Literal["prometheus", "openmetrics"] = "prometheus") -> str:
        """The metrics as the text that monitoring systems read.

        Parameters
        ----------
        format
            ``"prometheus"``, whose media type is ``text/plain; version=0.0.4; charset=utf-8``, or ``"openmetrics"``, whose
            media type is ``application/openmetrics-text; version=1.0.0; charset=utf-8``.

        Raises
        ------
        InvalidArgumentError
            When the format is another one.
        """
    def admin(self) -> AsyncAdmin:
        """The operations for operators: keys of the store, explanations, the policy document, lists."""
    @property
    def blocking(self) -> Limiter:
        """The same limiter as a ``Limiter``."""
    async def close(self) -> None:
        """Closes the limiter and its connections at once; later operations raise ``ClosedError``. Closing it again does nothing. The
        result may be awaited and need not be.
        """
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(self, *_exception: object) -> Coroutine[Any, Any, None]: ...
    def __reduce__(self) -> NoReturn: ...

@final
class Admin:
    """The operations for operators, by ``Limiter.admin``: keys of the store, explanations, the policy document, lists."""
    def block(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        time: float | timedelta,
        plan: str | None = None,
    ) -> Usage:
        """Denies every check, peek and reserve of the key for a time from now, unless it is blocked for longer already. A take takes
        nothing meanwhile; all other operations go on.

        Parameters
        ----------
        key
            The client or resource that is blocked: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        time
            Seconds or a ``timedelta``, from 1 ms to 366 days. 0 ends the block, as ``unblock`` does.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the time is not valid.
        ClosedError
            When the limiter was closed.
        """
    def unblock(self, key: _Key, policy: _Policy | None = None, *, plan: str | None = None) -> Usage:
        """Ends the key's block at once, and forgets the denials and blocks that a penalty has counted."""
    def doctor(self) -> builtins.list[Finding]:
        """Examines the store for problems of operation: version, memory policy, rights, latency and clock."""
    def matching(self, attributes: RequestAttributes) -> builtins.list[PolicyMatch]:
        """The policies that the configuration's rules apply to a request, with keys and costs; decides nothing.

        Raises
        ------
        InvalidArgumentError
            When the limiter has no configuration, or the attribute that gives a cost holds none.
        """
    def configuration(self) -> ConfigurationStatus | None:
        """Which configuration is active, and where it comes from; ``None`` for a limiter without one."""
    def set_document(self, document: str | Mapping[str, Any]) -> ConfigurationStatus:
        """Replaces the document that the program has given; entries stay.

        Parameters
        ----------
        document
            The text, in TOML or JSON, or a dict.

        Raises
        ------
        InvalidArgumentError
            When the document cannot be used: ``line L, column C: ...``; the previous one stays active. Also for a limiter whose
            configuration comes from elsewhere.
        """
    def set_entry(self, item: str, value: str | Mapping[str, Any] | None = None) -> ConfigurationStatus:
        """Sets an entry of the configuration, which takes the place of one with the same text.

        Parameters
        ----------
        item
            ``"deny ITEM"``, ``"allow ITEM"`` or ``"override POLICY KEY"``, such as ``"deny client 203.0.113.0/24"``.
        value
            A dict, or its JSON text, with ``until``, ``by``, ``why`` and, for an override, ``numbers``:
            ``{"numbers": "500/minute", "until": "2027-01-01T00:00:00Z"}``. A ``datetime`` with a time zone may be a time.

        Raises
        ------
        InvalidArgumentError
            When the entry cannot be read or does not fit the document, or the source of the configuration has no entries.
        StoreUnavailableError
            When Redis does not answer: the entry may have been set.
        """
    def delete_entry(self, item: str) -> ConfigurationStatus:
        """Deletes an entry of the configuration; one that is not there is no error.

        Parameters
        ----------
        item
            The text of the entry, such as ``"deny client 203.0.113.0/24"``.
        """
    def publish(
        self,
        document: str | Mapping[str, Any],
        *,
        expected_version: int | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> ConfigurationStatus:
        """Publishes a document to the Redis store that the configuration comes from, and waits until it is active here. Every
        process that follows the store takes it within a second.

        Parameters
        ----------
        document
            The text, in TOML or JSON, or a dict.
        expected_version
            The version of the document that this one replaces; by default whichever is there. With another version there, nothing
            is published.
        by
            The author's name, up to 256 bytes.
        why
            The reason, up to 1,024 bytes.

        Raises
        ------
        InvalidArgumentError
            When the document cannot be used, with its line and column; when another version than the expected one is there; when
            the document does not come from Redis.
        StoreUnavailableError
            When Redis does not answer: the document may have been published.
        """
    def wait_for_version(self, version: int, timeout: float | timedelta) -> ConfigurationStatus:
        """Waits until this version of the configuration or a later one is active.

        Parameters
        ----------
        version
            The version, as in the status that ``configuration()`` returns.
        timeout
            Seconds or a ``timedelta``.

        Raises
        ------
        StoreUnavailableError
            When the timeout passes before.
        InvalidArgumentError
            When the limiter has no configuration.
        """
    def candidate_counts(self, policy: _Policy) -> CandidateCounts | None:
        """What the candidate of a policy would have decided; ``None`` for a policy without a candidate."""
    def list(
        self,
        *,
        policy: _Policy | None = None,
        key_prefix: _Value | None = None,
        at_least_used: int | None = None,
        entries: int | None = None,
        examined: int | None = None,
        pace_percent: int | None = None,
        cursor: str | None = None,
    ) -> KeyPage:
        """A page of the keys that the store has, with what is used of their quotas; keys of which nothing counts any more are left
        out. A key that is there from the first page to the last is listed; docs/listing.md says more.

        In Redis the keys are found by SCAN, for which the user needs the right, and each call is followed by a pause. A list in
        memory or in a local store takes a millisecond for some thousand keys, during which an event loop waits.

        Parameters
        ----------
        policy
            A policy's name, or quotas such as ``"100/minute"``; by default the keys of all policies.
        key_prefix
            What the keys begin with, as text or bytes. A long key, of which the store has only a digest, has no prefix.
        at_least_used
            Keys of which at least this much is used, in percent; the default is 0.
        entries
            The page ends once it has this many keys, or up to a thousand more; the default is 1,000.
        examined
            The page ends once the store has examined this many keys; the default is 100,000.
        pace_percent
            The share of one server's time that a list in Redis may take, from 1 to 100; the default is 10.
        cursor
            The ``cursor`` of the page before.

        Returns
        -------
        KeyPage
            A dict: see ``polylimit.reports``. With ``cursor``, another page follows, even if this one has no keys.

        Raises
        ------
        InvalidArgumentError
            When a number is out of bounds, or the cursor is that of another list.
        StoreUnavailableError
            When the store does not answer.
        StoreFailedError
            When the user may not list keys.
        """
    def scan_top(
        self,
        most: int,
        *,
        policy: _Policy | None = None,
        key_prefix: _Value | None = None,
        at_least_used: int | None = None,
        examined: int | None = None,
        pace_percent: int | None = None,
    ) -> KeyPage:
        """The keys of which the most is used, first the one of which most is: exact for all keys that are examined. With a
        ``cursor`` in the answer, the budget has ended before all were.

        Denials leave no trace in a store: ``top_keys`` returns the keys that are denied most often.

        Parameters
        ----------
        most
            How many keys.
        policy, key_prefix, at_least_used, examined, pace_percent
            As for ``list``.

        Returns
        -------
        KeyPage
            A dict: see ``polylimit.reports``.

        Raises
        ------
        PolylimitError
            As for ``list``.
        """
    def reset_listed(
        self,
        *,
        policy: _Policy | None = None,
        key_prefix: _Value | None = None,
        at_least_used: int | None = None,
        entries: int | None = None,
        examined: int | None = None,
        pace_percent: int | None = None,
        cursor: str | None = None,
    ) -> ResetPage:
        """Lists a page of keys as ``list`` does, and resets them: the store forgets them, and what they have used. Keys of policies
        that this limiter does not know stay. To count the keys first, list them.

        Parameters
        ----------
        policy, key_prefix, at_least_used, entries, examined, pace_percent, cursor
            As for ``list``.

        Returns
        -------
        ResetPage
            A dict: see ``polylimit.reports``. With ``cursor``, another page follows.

        Raises
        ------
        PolylimitError
            As for ``list``. Keys may have been reset before an error, or before an interrupt.
        """
    def explain(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> KeyExplanation:
        """Why a request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and
        reservations; and what the configuration says about the key. It spends nothing.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        headroom
            The part of each quota that the request leaves for others, in percent from 0 to 99; the default is 0.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Returns
        -------
        KeyExplanation
            A dict: see ``polylimit.reports``.

        Raises
        ------
        InvalidArgumentError
            When an argument is not valid.
        StoreUnavailableError
            When the store does not answer: no outage policy answers in its place.
        """
    def explain_request(self, attributes: RequestAttributes) -> RequestExplanation:
        """Why a request, by its attributes, would be admitted or denied by the configuration: the item of a list that decides, or
        the rules that match, with what each of their policies says. It spends nothing.

        Returns
        -------
        RequestExplanation
            A dict: see ``polylimit.reports``.

        Raises
        ------
        InvalidArgumentError
            When the limiter has no configuration, or the attribute that gives a cost holds none.
        StoreUnavailableError
            When the store does not answer: no outage policy answers in its place.
        """
    def top_keys(self, most: int) -> TopKeys:
        """The keys that this limiter has denied and admitted most often in this process lately. It needs the option
        ``observe_keys``; without, there are none. No store is asked, and nothing waits.

        Counts are estimated from a sample, and halved once a minute.

        Parameters
        ----------
        most
            How many keys of each at most.

        Returns
        -------
        TopKeys
            A dict: see ``polylimit.reports``.
        """
    def keys(self) -> int | None:
        """How many keys have a state in the memory store or the local store; ``None`` for Redis."""
    def set_credentials(self, password: str, *, username: str | None = None) -> None:
        """Changes the password, and the user name if given, with which new connections authenticate."""
    def __reduce__(self) -> NoReturn: ...

@final
class AsyncAdmin:
    """The operations for operators, by ``AsyncLimiter.admin``: keys of the store, explanations, the policy document, lists."""
    async def block(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        time: float | timedelta,
        plan: str | None = None,
    ) -> Usage:
        """Denies every check, peek and reserve of the key for a time from now, unless it is blocked for longer already. A take takes
        nothing meanwhile; all other operations go on.

        Parameters
        ----------
        key
            The client or resource that is blocked: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        time
            Seconds or a ``timedelta``, from 1 ms to 366 days. 0 ends the block, as ``unblock`` does.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Raises
        ------
        InvalidArgumentError
            When the key, the policy or the time is not valid.
        ClosedError
            When the limiter was closed.
        """
    async def unblock(self, key: _Key, policy: _Policy | None = None, *, plan: str | None = None) -> Usage:
        """Ends the key's block at once, and forgets the denials and blocks that a penalty has counted."""
    async def doctor(self) -> builtins.list[Finding]:
        """Examines the store for problems of operation: version, memory policy, rights, latency and clock."""
    def matching(self, attributes: RequestAttributes) -> builtins.list[PolicyMatch]:
        """The policies that the configuration's rules apply to a request, with keys and costs; decides nothing.

        Raises
        ------
        InvalidArgumentError
            When the limiter has no configuration, or the attribute that gives a cost holds none.
        """
    def configuration(self) -> ConfigurationStatus | None:
        """Which configuration is active, and where it comes from; ``None`` for a limiter without one."""
    def set_document(self, document: str | Mapping[str, Any]) -> ConfigurationStatus:
        """Replaces the document that the program has given; entries stay.

        Parameters
        ----------
        document
            The text, in TOML or JSON, or a dict.

        Raises
        ------
        InvalidArgumentError
            When the document cannot be used: ``line L, column C: ...``; the previous one stays active. Also for a limiter whose
            configuration comes from elsewhere.
        """
    async def set_entry(self, item: str, value: str | Mapping[str, Any] | None = None) -> ConfigurationStatus:
        """Sets an entry of the configuration, which takes the place of one with the same text.

        Parameters
        ----------
        item
            ``"deny ITEM"``, ``"allow ITEM"`` or ``"override POLICY KEY"``, such as ``"deny client 203.0.113.0/24"``.
        value
            A dict, or its JSON text, with ``until``, ``by``, ``why`` and, for an override, ``numbers``:
            ``{"numbers": "500/minute", "until": "2027-01-01T00:00:00Z"}``. A ``datetime`` with a time zone may be a time.

        Raises
        ------
        InvalidArgumentError
            When the entry cannot be read or does not fit the document, or the source of the configuration has no entries.
        StoreUnavailableError
            When Redis does not answer: the entry may have been set.
        """
    async def delete_entry(self, item: str) -> ConfigurationStatus:
        """Deletes an entry of the configuration; one that is not there is no error.

        Parameters
        ----------
        item
            The text of the entry, such as ``"deny client 203.0.113.0/24"``.
        """
    async def publish(
        self,
        document: str | Mapping[str, Any],
        *,
        expected_version: int | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> ConfigurationStatus:
        """Publishes a document to the Redis store that the configuration comes from, and waits until it is active here. Every
        process that follows the store takes it within a second.

        Parameters
        ----------
        document
            The text, in TOML or JSON, or a dict.
        expected_version
            The version of the document that this one replaces; by default whichever is there. With another version there, nothing
            is published.
        by
            The author's name, up to 256 bytes.
        why
            The reason, up to 1,024 bytes.

        Raises
        ------
        InvalidArgumentError
            When the document cannot be used, with its line and column; when another version than the expected one is there; when
            the document does not come from Redis.
        StoreUnavailableError
            When Redis does not answer: the document may have been published.
        """
    async def wait_for_version(self, version: int, timeout: float | timedelta) -> ConfigurationStatus:
        """Waits until this version of the configuration or a later one is active.

        Parameters
        ----------
        version
            The version, as in the status that ``configuration()`` returns.
        timeout
            Seconds or a ``timedelta``.

        Raises
        ------
        StoreUnavailableError
            When the timeout passes before.
        InvalidArgumentError
            When the limiter has no configuration.
        """
    def candidate_counts(self, policy: _Policy) -> CandidateCounts | None:
        """What the candidate of a policy would have decided; ``None`` for a policy without a candidate."""
    async def list(
        self,
        *,
        policy: _Policy | None = None,
        key_prefix: _Value | None = None,
        at_least_used: int | None = None,
        entries: int | None = None,
        examined: int | None = None,
        pace_percent: int | None = None,
        cursor: str | None = None,
    ) -> KeyPage:
        """A page of the keys that the store has, with what is used of their quotas; keys of which nothing counts any more are left
        out. A key that is there from the first page to the last is listed; docs/listing.md says more.

        In Redis the keys are found by SCAN, for which the user needs the right, and each call is followed by a pause. A list in
        memory or in a local store takes a millisecond for some thousand keys, during which an event loop waits.

        Parameters
        ----------
        policy
            A policy's name, or quotas such as ``"100/minute"``; by default the keys of all policies.
        key_prefix
            What the keys begin with, as text or bytes. A long key, of which the store has only a digest, has no prefix.
        at_least_used
            Keys of which at least this much is used, in percent; the default is 0.
        entries
            The page ends once it has this many keys, or up to a thousand more; the default is 1,000.
        examined
            The page ends once the store has examined this many keys; the default is 100,000.
        pace_percent
            The share of one server's time that a list in Redis may take, from 1 to 100; the default is 10.
        cursor
            The ``cursor`` of the page before.

        Returns
        -------
        KeyPage
            A dict: see ``polylimit.reports``. With ``cursor``, another page follows, even if this one has no keys.

        Raises
        ------
        InvalidArgumentError
            When a number is out of bounds, or the cursor is that of another list.
        StoreUnavailableError
            When the store does not answer.
        StoreFailedError
            When the user may not list keys.
        """
    async def scan_top(
        self,
        most: int,
        *,
        policy: _Policy | None = None,
        key_prefix: _Value | None = None,
        at_least_used: int | None = None,
        examined: int | None = None,
        pace_percent: int | None = None,
    ) -> KeyPage:
        """The keys of which the most is used, first the one of which most is: exact for all keys that are examined. With a
        ``cursor`` in the answer, the budget has ended before all were.

        Denials leave no trace in a store: ``top_keys`` returns the keys that are denied most often.

        Parameters
        ----------
        most
            How many keys.
        policy, key_prefix, at_least_used, examined, pace_percent
            As for ``list``.

        Returns
        -------
        KeyPage
            A dict: see ``polylimit.reports``.

        Raises
        ------
        PolylimitError
            As for ``list``.
        """
    async def reset_listed(
        self,
        *,
        policy: _Policy | None = None,
        key_prefix: _Value | None = None,
        at_least_used: int | None = None,
        entries: int | None = None,
        examined: int | None = None,
        pace_percent: int | None = None,
        cursor: str | None = None,
    ) -> ResetPage:
        """Lists a page of keys as ``list`` does, and resets them: the store forgets them, and what they have used. Keys of policies
        that this limiter does not know stay. To count the keys first, list them.

        Parameters
        ----------
        policy, key_prefix, at_least_used, entries, examined, pace_percent, cursor
            As for ``list``.

        Returns
        -------
        ResetPage
            A dict: see ``polylimit.reports``. With ``cursor``, another page follows.

        Raises
        ------
        PolylimitError
            As for ``list``. Keys may have been reset before an error, or before an interrupt.
        """
    async def explain(
        self,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> KeyExplanation:
        """Why a request would be admitted or denied now: what each quota says, in the words of its algorithm; blocks and
        reservations; and what the configuration says about the key. It spends nothing.

        Parameters
        ----------
        key
            The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
        policy
            A policy's name, or quotas such as ``"100/minute"``; it may be left out where the limiter has one policy.
        cost
            Units, from 0 to 10**12; the default is 1.
        headroom
            The part of each quota that the request leaves for others, in percent from 0 to 99; the default is 0.
        plan
            The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.

        Returns
        -------
        KeyExplanation
            A dict: see ``polylimit.reports``.

        Raises
        ------
        InvalidArgumentError
            When an argument is not valid.
        StoreUnavailableError
            When the store does not answer: no outage policy answers in its place.
        """
    async def explain_request(self, attributes: RequestAttributes) -> RequestExplanation:
        """Why a request, by its attributes, would be admitted or denied by the configuration: the item of a list that decides, or
        the rules that match, with what each of their policies says. It spends nothing.

        Returns
        -------
        RequestExplanation
            A dict: see ``polylimit.reports``.

        Raises
        ------
        InvalidArgumentError
            When the limiter has no configuration, or the attribute that gives a cost holds none.
        StoreUnavailableError
            When the store does not answer: no outage policy answers in its place.
        """
    def top_keys(self, most: int) -> TopKeys:
        """The keys that this limiter has denied and admitted most often in this process lately. It needs the option
        ``observe_keys``; without, there are none. No store is asked, and nothing waits.

        Counts are estimated from a sample, and halved once a minute.

        Parameters
        ----------
        most
            How many keys of each at most.

        Returns
        -------
        TopKeys
            A dict: see ``polylimit.reports``.
        """
    def keys(self) -> int | None:
        """How many keys have a state in the memory store or the local store; ``None`` for Redis."""
    def set_credentials(self, password: str, *, username: str | None = None) -> None:
        """Changes the password, and the user name if given, with which new connections authenticate."""
    def __reduce__(self) -> NoReturn: ...

@final
class Operation(Coroutine[Any, Any, Any]):
    """An operation that has to be awaited."""
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any:
        """Runs the operation until it waits or is finished; for event loops."""
    def throw(self, *exception: Any) -> Any:
        """Ends the operation with an exception; for event loops. A request that was already sent to the store is counted there."""
    def close(self) -> None:
        """Ends the operation without a result."""
    def __bool__(self) -> NoReturn: ...

@final
class ReserveOperation(Coroutine[Any, Any, AsyncReservation]):
    """A reserve that has to be awaited, or entered by ``async with``; both give an ``AsyncReservation``."""
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    def __await__(self) -> Generator[Any, Any, AsyncReservation]: ...
    def __aenter__(self) -> Coroutine[Any, Any, AsyncReservation]: ...
    def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        _exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> Coroutine[Any, Any, None]: ...
    def send(self, value: Any, /) -> Any:
        """Runs the operation until it waits or is finished; for event loops."""
    def throw(self, *exception: Any) -> Any:
        """Ends the operation with an exception; for event loops. A reservation that was already sent to the store is cancelled."""
    def close(self) -> None:
        """Ends the operation without a result."""
    def __bool__(self) -> NoReturn: ...

@final
class Reservation:
    """Units that are set aside for the caller, made by ``Limiter.reserve``; true when the request is allowed.

    As a scope, ``with limiter.reserve("tenant:7", cost=4000) as reservation:``, it is cancelled at the end unless it was
    committed: always when an exception leaves the scope, and otherwise unless ``commit_at_end`` was chosen. A denied
    reservation enters its scope as well and raises nothing: the caller looks at ``allowed``.

    While it lives, the limiter renews it in the background. One that is forgotten ends when it is freed.
    """
    @property
    def allowed(self) -> bool:
        """Whether every quota has admitted the request, so that its units are set aside."""
    @property
    def decision(self) -> Decision:
        """The decision on the request."""
    @property
    def id(self) -> str:
        """The id, by which another process can end the reservation."""
    @property
    def is_lost(self) -> bool:
        """Whether the reservation is known to have ended without its holder, so that its units may be admitted to others meanwhile."""
    def commit(self, spent: SupportsIndex | None = None) -> Usage:
        """Ends the reservation and charges what was spent. The usage's ``found`` is false, and nothing is charged, when the
        reservation has ended before or was denied.

        Parameters
        ----------
        spent
            Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
        """
    def cancel(self) -> Usage:
        """Ends the reservation and spends nothing. The usage's ``found`` is false when it has ended before or was denied."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        _exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __bool__(self) -> bool: ...

@final
class AsyncReservation:
    """Units that are set aside for the caller, made by ``AsyncLimiter.reserve``; true when the request is allowed.

    As a scope, ``async with limiter.reserve("tenant:7", cost=4000) as reservation:``, it is cancelled at the end unless it was
    committed: always when an exception leaves the scope, and otherwise unless ``commit_at_end`` was chosen. A denied
    reservation enters its scope as well and raises nothing: the caller looks at ``allowed``.

    While it lives, the limiter renews it in the background. One that is forgotten ends when it is freed.
    """
    @property
    def allowed(self) -> bool:
        """Whether every quota has admitted the request, so that its units are set aside."""
    @property
    def decision(self) -> Decision:
        """The decision on the request."""
    @property
    def id(self) -> str:
        """The id, by which another process can end the reservation."""
    @property
    def is_lost(self) -> bool:
        """Whether the reservation is known to have ended without its holder, so that its units may be admitted to others meanwhile."""
    async def commit(self, spent: SupportsIndex | None = None) -> Usage:
        """Ends the reservation and charges what was spent. The usage's ``found`` is false, and nothing is charged, when the
        reservation has ended before or was denied.

        Parameters
        ----------
        spent
            Units, from 0 to 10**12: less than was reserved, or more; the default is what was reserved.
        """
    async def cancel(self) -> Usage:
        """Ends the reservation and spends nothing. The usage's ``found`` is false when it has ended before or was denied."""
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        _exception: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> Coroutine[Any, Any, None]: ...
    def __bool__(self) -> bool: ...

@final
class Decision:
    """The result of a check, a peek, an acquire or a reserve; true when the request is allowed."""
    @property
    def allowed(self) -> bool:
        """Whether every quota of the policy admits the request."""
    @property
    def remaining(self) -> int:
        """Whole units that can be spent right after this decision: the minimum over the quotas."""
    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request would be admitted if no other arrives: exactly then, and not earlier. 0 when allowed;
        ``None`` when the cost exceeds what a quota can ever admit.
        """
    @property
    def retry_after_us(self) -> int | None:
        """``retry_after`` in whole microseconds, exact."""
    @property
    def reset_after(self) -> float:
        """Seconds until nothing counts as used if no other request arrives: the maximum over the quotas."""
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
    def over(self) -> int:
        """Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit."""
    @property
    def cause(self) -> _Cause | None:
        """Why the request was denied: ``"quota"``, ``"concurrency"``, ``"blocked"``, ``"deny_list"`` or ``"missing_key"``; or why it was
        admitted without the store: ``"off"`` or ``"allow_list"``. ``None`` for every other decision.
        """
    @property
    def crossed(self) -> bool:
        """Whether the request's units were the first beyond the limit of a quota with an excess."""
    @property
    def elastic(self) -> bool:
        """Whether the pool of an elastic policy admitted the request; then nothing was spent in the policy itself."""
    @property
    def shadowed(self) -> bool:
        """Whether the request would have been denied if its policy were not in shadow: it is allowed, and ``cause`` and ``retry_after``
        are those of the denial.
        """
    @property
    def source(self) -> str:
        """Where the decision was made, such as ``"store"``, ``"configuration"`` where no store was asked, or ``"fallback"`` while the
        store could not be asked.
        """
    @property
    def degraded(self) -> str | None:
        """Why this may differ from the decision of a healthy store, such as ``"timeout"``; ``None`` when it does not."""
    @property
    def quotas(self) -> tuple[QuotaUsage, ...]:
        """The usage of each quota and its verdict on the request, in the policy's order.

        A blocked key is denied whatever its quotas say. The pool of an elastic policy may admit sooner than its quotas, and a policy
        in shadow admits what they deny. Where no quota was asked, as for a deny list and the outage policies ``"allow"`` and
        ``"deny"``, every quota admits.
        """
    def __bool__(self) -> bool: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def as_dict(self) -> dict[str, Any]:
        """The decision as a dict of what JSON has, with the names of the properties; each of ``quotas`` is a dict as well."""
    @staticmethod
    def from_dict(parts: Mapping[str, Any]) -> Decision:
        """The decision of which ``as_dict`` made this dict. A test may write one: ``allowed`` and ``quotas``, each with its ``limit``, are needed;
        what is left out is 0, false or ``None``. Of a time, the twin in microseconds is read.

        Raises
        ------
        InvalidArgumentError
            When the parts do not make a decision.
        """
    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], Decision], tuple[dict[str, Any]]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Usage:
    """The result of every operation that decides nothing, such as a take, a charge, a commit or a block: what is left after it.

    It is true when ``taken`` is above 0: ``if limiter.take("user:42", cost=5): ...``
    """
    @property
    def remaining(self) -> int:
        """Whole units that can be spent right now: the minimum over the quotas."""
    @property
    def reset_after(self) -> float:
        """Seconds until nothing counts as used if no other request arrives: the maximum over the quotas."""
    @property
    def reset_after_us(self) -> int:
        """``reset_after`` in whole microseconds, exact."""
    @property
    def taken(self) -> int:
        """The units that a take spent from every quota, from 0 to its cost; 0 for every other operation."""
    @property
    def found(self) -> bool:
        """Whether a commit, a cancel or a renew has found the reservation; true for every other operation."""
    @property
    def repeated(self) -> bool:
        """Whether this was a commit of an id that was committed before and is remembered, so that nothing was charged."""
    @property
    def over(self) -> int:
        """Units of an excess that are in use, the most over the quotas: above 0 once use is beyond a quota's limit."""
    @property
    def source(self) -> str:
        """Where the decision was made, such as ``"store"``, or ``"fallback"`` while the store could not be asked."""
    @property
    def degraded(self) -> str | None:
        """Why this may differ from the result of a healthy store, such as ``"timeout"``; ``None`` when it does not."""
    @property
    def quotas(self) -> tuple[QuotaUsage, ...]:
        """The usage of each quota, in the policy's order."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def as_dict(self) -> dict[str, Any]:
        """The usage as a dict of what JSON has, with the names of the properties; each of ``quotas`` is a dict as well."""
    @staticmethod
    def from_dict(parts: Mapping[str, Any]) -> Usage:
        """The usage of which ``as_dict`` made this dict. A test may write one: ``quotas``, each with its ``limit``, are needed; what is left out
        is 0, false or ``None``, and ``found`` is true. Of a time, the twin in microseconds is read.

        Raises
        ------
        InvalidArgumentError
            When the parts do not make a usage.
        """
    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], Usage], tuple[dict[str, Any]]]: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class QuotaUsage:
    """The usage of one quota by a key after the operation and, in a ``Decision``, the quota's verdict on the request."""
    @property
    def limit(self) -> int:
        """The quota's limit, in units per period."""
    @property
    def remaining(self) -> int:
        """Whole units that this quota would admit right now."""
    @property
    def reset_after(self) -> float:
        """Seconds until nothing counts as used under this quota if no other request arrives."""
    @property
    def reset_after_us(self) -> int:
        """``reset_after`` in whole microseconds, exact."""
    @property
    def over(self) -> int:
        """Units of the quota's excess that are in use: above 0 once use is beyond the limit."""
    @property
    def allowed(self) -> bool:
        """Whether this quota admits the request of the decision; true in a ``Usage``, which decides nothing."""
    @property
    def retry_after(self) -> float | None:
        """Seconds until this quota would admit the same request if no other arrives: exactly then, and not earlier. 0 when it admits it;
        ``None`` when the cost exceeds what it can ever admit.
        """
    @property
    def retry_after_us(self) -> int | None:
        """``retry_after`` in whole microseconds, exact."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Quota:
    """At most ``limit`` units per ``period``, counted by an algorithm.

    ``Quota("100/minute")`` reads the text form; ``Quota(100, 60)`` and ``Quota(100, timedelta(minutes=1))`` take numbers.
    ``Quota.concurrent(20)`` limits reservations at a time. ``str(quota)`` is the text form.

    Parameters
    ----------
    limit
        The text form, or units per period from 0 to 10**12; 0 admits nothing.
    period
        Seconds or a ``timedelta``, from 1 ms to 366 days, in whole microseconds.
    algorithm
        ``"sliding_window"`` (the default), ``"token_bucket"``, ``"leaky_bucket"``, ``"fixed_window"`` or ``"sliding_log"``.
    burst
        The capacity of the two buckets in units, from 1 to 10**12; the default is ``limit``.
    step
        Token bucket only: how many tokens arrive at a time.
    buckets
        Sliding window only: into how many sub-windows the period is divided, from 1 to 60.
    aligned
        Fixed window only: windows start at multiples of the period since the Unix epoch.
    count_denied
        Denied requests are charged as well.
    excess
        Units beyond the limit or burst that are admitted as well and reported as ``over`` in decisions, from 0 to ``limit``.

    Raises
    ------
    InvalidArgumentError
        When a number is out of bounds, or a setting does not belong to the algorithm.
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
        excess: int | None = None,
    ) -> Self: ...
    @staticmethod
    def concurrent(limit: int) -> Quota:
        """At most ``limit`` reservations of a key at a time, whatever their cost; the text form is ``"20 concurrent"``. Requests
        under a policy with such a quota can only be reserved.

        Parameters
        ----------
        limit
            Reservations, from 0 to 10**12; a key never has more than 1000.

        Raises
        ------
        InvalidArgumentError
            When the number is out of bounds.
        """
    @property
    def limit(self) -> int:
        """Units per period; reservations at a time for ``"concurrency"``."""
    @property
    def period(self) -> float:
        """The period in seconds; 0 for ``"concurrency"``, which has none. By the calendar, no window is shorter."""
    @property
    def calendar(self) -> str | None:
        """The windows by the calendar of a fixed window, such as ``"month from=15 zone=Europe/Berlin"``; ``None`` for a period."""
    @property
    def algorithm(self) -> _Algorithm | Literal["concurrency"]:
        """The name of the algorithm."""
    @property
    def capacity(self) -> int:
        """The most units that can be spent at once."""
    @property
    def step(self) -> int | None:
        """How many tokens arrive in a stepped token bucket at a time; ``None`` for every other quota."""
    @property
    def buckets(self) -> int | None:
        """How many sub-windows a sliding window has; ``None`` for every other algorithm."""
    @property
    def aligned(self) -> bool:
        """Whether a fixed window starts at multiples of the period since the Unix epoch."""
    @property
    def count_denied(self) -> bool:
        """Whether denied requests are charged as well."""
    @property
    def excess(self) -> int:
        """Units beyond the limit or burst that are admitted as well."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class Policy:
    """A named list of one or more quotas: a request is admitted by all of them, or spends nothing under any.

    Parameters
    ----------
    name
        1 to 64 letters, digits and ``!#$%&'*+-.^_`|~``.
    quotas
        Text such as ``"10/s; 1000/h"``, a ``Quota``, or a list of either; 1 to 16 quotas.

    A limiter takes it in place of its name and quotas: ``Limiter("memory:", [policy])``; and an operation in place of its name:
    ``limiter.check("user:42", policy)``.

    Raises
    ------
    InvalidArgumentError
        When the name or a quota is not valid, or two quotas cannot be distinguished.
    """
    def __new__(cls, name: str, quotas: _Quotas) -> Self: ...
    @property
    def name(self) -> str:
        """The name."""
    @property
    def quotas(self) -> tuple[Quota, ...]:
        """The quotas, in the order in which they were given."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __getnewargs__(self) -> tuple[str, list[str]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RequestAttributes:
    """What is known of a request: what the rules, lists and plans of a configuration are about.

    Texts count as their UTF-8 bytes, and whole numbers as their decimal text. What is not given is absent, and so is an empty value.

    Parameters
    ----------
    method
        The method, such as ``"GET"``. Methods are compared as they are written.
    path
        The path as the client sent it, with its escapes; scheme and authority before it and a query after it are ignored.
    peer
        The other end of the socket: an address, with or without a port.
    headers
        The lines of the header, as pairs of a name in any case and a value, in their order.
    attributes
        What the application knows, such as ``{"user": "alice"}``. A name is a letter and then letters, digits and ``_``, in lower
        case.
    router_paths
        How the router behind the limit reads paths, as a sum: 1 where it ignores case, 2 where it drops the parameters of segments such
        as ``;x=1``, and 4 where it accepts a format at the end, such as ``.json``. The table ``paths`` of a document overrides it.
    """
    def __new__(
        cls,
        *,
        method: _Value | None = None,
        path: _Value | None = None,
        peer: str | None = None,
        headers: Mapping[str, _Value] | Iterable[tuple[str | bytes, _Value]] = (),
        attributes: Mapping[str, _Value | None] | None = None,
        router_paths: int = 0,
    ) -> Self: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...

@final
class RequestDecision:
    """The decision on a request by the lists, rules and policies of a configuration; true when the request is allowed."""
    @property
    def allowed(self) -> bool:
        """Whether the request may proceed."""
    @property
    def cause(self) -> _Cause | None:
        """The cause of the first denial, or why the request was admitted without the store: as the ``cause`` of a ``Decision``."""
    @property
    def status(self) -> int | None:
        """The HTTP status of a denial: 400 for a missing key, 403 for a deny list, otherwise 429. ``None`` when allowed."""
    @property
    def retry_after(self) -> float | None:
        """Seconds until the request would be admitted: the longest over the denials; 0 when allowed, and ``None`` for never."""
    @property
    def retry_after_us(self) -> int | None:
        """``retry_after`` in whole microseconds, exact."""
    @property
    def decisions(self) -> tuple[PolicyDecision, ...]:
        """The decisions of the policies that the rules apply, in their order; none where a list or a missing key decides."""
    def __bool__(self) -> bool: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class RequestReservation:
    """The result of ``reserve_together``: the decision on each request, and the id of the reservations; true when all are admitted."""
    @property
    def allowed(self) -> bool:
        """Whether every request is admitted, so that units are set aside or spent."""
    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The decision on each request, in their order. In a denied request, those that admit are the decisions of a peek."""
    @property
    def id(self) -> str:
        """The id of the reservations, for the limiter's ``commit``, ``cancel`` and ``renew``."""
    def __bool__(self) -> bool: ...
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class PolicyDecision:
    """The decision of one policy on a request."""
    @property
    def policy(self) -> str:
        """The policy's name."""
    @property
    def key(self) -> bytes:
        """The key under the policy."""
    @property
    def cost(self) -> int:
        """The units that the request spends."""
    @property
    def headroom(self) -> int:
        """The part of each quota that the request leaves for others, in percent."""
    @property
    def decision(self) -> Decision:
        """The decision. Those of a denied request may admit it: what they spent is given back."""
    @property
    def reservation(self) -> str | None:
        """The id of the reservation that was made under the policy, for the limiter's ``commit`` and ``cancel``; ``None`` where units
        were spent.
        """
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class PolicyMatch:
    """A policy that the rules of a configuration apply to a request."""
    @property
    def policy(self) -> str:
        """The policy's name."""
    @property
    def key(self) -> bytes:
        """The key under the policy."""
    @property
    def cost(self) -> int:
        """The units that the request spends."""
    @property
    def headroom(self) -> int:
        """The part of each quota that the request leaves for others, in percent."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class ConfigurationStatus:
    """Which configuration is active, and where it comes from."""
    @property
    def source(self) -> str:
        """The source: ``"document"`` for one that the program gives, otherwise as the option ``configuration`` names it."""
    @property
    def version(self) -> int:
        """Raised with each change; 0 before the first."""
    @property
    def document_version(self) -> int:
        """Which document of Redis is active, counted from 1: what ``expected_version`` of ``publish`` expects to replace. 0 where the
        document does not come from Redis.
        """
    @property
    def digest(self) -> str:
        """SHA-256 of the active document in canonical form, as hexadecimal digits; empty before the first."""
    @property
    def applied_at(self) -> float:
        """When this version was applied, in seconds since the Unix epoch by the clock of this host; 0 before the first."""
    @property
    def applied_at_us(self) -> int:
        """``applied_at`` in whole microseconds, exact."""
    @property
    def age(self) -> float:
        """Seconds for which the source has been unreachable; 0 while it is reachable."""
    @property
    def age_us(self) -> int:
        """``age`` in whole microseconds, exact."""
    @property
    def error(self) -> str | None:
        """Why a newer configuration was not applied, or may not be known; ``None`` when all is well."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class CandidateCounts:
    """What the candidate of a policy would have decided compared with the effective quotas, in checks since either's quotas changed."""
    @property
    def both_allow(self) -> int:
        """Checks that both admit."""
    @property
    def only_live_denies(self) -> int:
        """Checks that the effective quotas deny and the candidate would admit."""
    @property
    def only_candidate_denies(self) -> int:
        """Checks that the effective quotas admit and the candidate would deny."""
    @property
    def both_deny(self) -> int:
        """Checks that both deny."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Request:
    """A key, the policy that is applied to it, and the units that the request spends; for ``check_many`` and ``check_together``.

    Parameters
    ----------
    key
        The client or resource that is limited: text or bytes, up to 1 MiB; a whole number counts as its decimal text.
    policy
        A policy's name, or quotas; it may be left out where the limiter has one policy.
    cost
        Units, from 0 to 10**12.
    headroom
        The part of each quota that the request leaves for others, in percent from 0 to 99; the default is 0.
    plan
        The plan of the key, whose quotas decide where the policy has it; a calendar may follow: ``gold from=15``.
    """
    def __new__(
        cls,
        key: _Key,
        policy: _Policy | None = None,
        *,
        cost: SupportsIndex | None = None,
        headroom: int | None = None,
        plan: str | None = None,
    ) -> Self: ...
    @property
    def key(self) -> str | bytes | int:
        """The client or resource that is limited."""
    @property
    def policy(self) -> str | Quota | None:
        """The policy's name or quotas, if it was given."""
    @property
    def cost(self) -> int:
        """The units that the request spends."""
    @property
    def headroom(self) -> int:
        """The part of each quota that the request leaves for others, in percent."""
    @property
    def plan(self) -> str | None:
        """The plan of the key, if it was given."""
    def __getnewargs_ex__(self) -> tuple[tuple[Any, Any], dict[str, Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...

@final
class ManualClock:
    """A clock for tests: it moves only when it is set or advanced, and it may go back.

    Parameters
    ----------
    now
        The time: seconds since the Unix epoch, or a ``timedelta`` since then, up to the year 2255.

    Raises
    ------
    InvalidArgumentError
        When the time is after the year 2255.
    """
    def __new__(cls, now: float | timedelta) -> Self: ...
    @property
    def now(self) -> float:
        """The time in seconds since the Unix epoch."""
    @property
    def now_us(self) -> int:
        """The time in whole microseconds since the Unix epoch, exact."""
    def set(self, now: float | timedelta) -> None:
        """Sets the time, in seconds since the Unix epoch or as a ``timedelta`` since then; it may go back."""
    def advance(self, by: float | timedelta) -> None:
        """Moves the time forward, by seconds or a ``timedelta``."""

@final
class Backoff:
    """When the client of a limited service tries again, and when it gives up: exponential backoff with full jitter.

    The wait before retry n, counted from 0, is random from 0 to ``base * 2**n``, at most ``cap``. A wait that the server asks for
    is added to it.

    Parameters
    ----------
    base
        Seconds or a ``timedelta``: the longest wait before the first retry, from 1 ms to the cap; 0.1 by default.
    cap
        Where the doubling ends, from the base to a day; 20 by default.
    max_wait
        The longest wait that a server may ask for, 0 to 366 days; 300 by default.
    max_retries
        How many retries may follow the first try; 5 by default.

    Raises
    ------
    InvalidArgumentError
        When a setting is out of its range.
    """
    def __new__(
        cls,
        *,
        base: float | timedelta | None = None,
        cap: float | timedelta | None = None,
        max_wait: float | timedelta | None = None,
        max_retries: int | None = None,
    ) -> Self: ...
    def wait(self, retry: int, server_wait: float | timedelta | None = None) -> float | None:
        """How many seconds to wait before the next try; ``None`` to give up.

        Gives up once ``max_retries`` retries were made, and when the server asks for more than ``max_wait``.

        Parameters
        ----------
        retry
            How many retries were made before: 0 after the first failure.
        server_wait
            What the last response asked for, as read by ``server_wait``.
        """
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...

@final
class Throttle:
    """The pauses and the backoff of one client, for the wrappers of this package."""
    def __new__(cls, backoff: Backoff | None = None) -> Self: ...
    def start(self, key: _Key, method: str, replayable: bool, timeout: float | timedelta | None) -> Attempts:
        """Starts a request; its waits end after the timeout or ``max_wait``, whichever is shorter."""

@final
class Attempts:
    """The attempts of one request of a throttled client."""
    def step(self) -> tuple[Literal["wait", "acquire", "send", "refuse"], float]:
        """What to do next: ``wait`` this many seconds and ask again, ``acquire`` with this timeout, ``send``, or ``refuse``."""
    def acquired(self, decision: Decision) -> None:
        """The limiter has decided."""
    def responded(self, status: int, headers: _Headers) -> bool:
        """A response has arrived; returns whether to discard it and try again."""
    def refusal(self) -> tuple[str, float | None] | None:
        """Why the request is refused, and after how many seconds it would be sent; ``None`` before."""

@final
class DegradedEvent:
    """Reports that a limiter began to decide without its store, that it decides with its store again, or what its doctor found.

    Its text is the line that is logged. It contains no key, password or URL.
    """
    @property
    def kind(self) -> Literal["started", "ended", "finding"]:
        """What happened: ``"started"``, ``"ended"`` or ``"finding"``."""
    @property
    def reason(self) -> str | None:
        """Why the first decision was made without the store, such as ``"timeout"``; ``None`` for a finding."""
    @property
    def lasted(self) -> float:
        """Seconds from the first decision that was made without the store to the last one; 0 unless ``kind`` is ``"ended"``."""
    @property
    def decisions(self) -> int:
        """How many decisions were made without the store; 0 unless ``kind`` is ``"ended"``."""
    @property
    def finding(self) -> Finding | None:
        """What the doctor found; ``None`` unless ``kind`` is ``"finding"``."""
    @property
    def severity(self) -> Literal["fine", "advice", "problem"]:
        """How serious it is: ``"fine"`` at the end of an outage, otherwise ``"advice"`` or ``"problem"``."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Finding:
    """One result of the doctor's examination of the store."""
    @property
    def severity(self) -> Literal["fine", "advice", "problem"]:
        """How serious it is: ``"fine"``, ``"advice"`` or ``"problem"``."""
    @property
    def subject(self) -> str:
        """What was examined, such as ``"version"`` or ``"rights"``."""
    @property
    def message(self) -> str:
        """What was found, and what to do about it. It contains no password and no key."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class MetricFamily:
    """Samples of one kind, under one name."""
    @property
    def name(self) -> str:
        """The name, such as ``"polylimit_decisions_total"``. That of a counter ends in ``_total``."""
    @property
    def help(self) -> str:
        """What is counted or measured, in one sentence."""
    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """What the samples are: ``"counter"``, ``"gauge"`` or ``"histogram"``."""
    @property
    def samples(self) -> list[MetricSample]:
        """The samples, which differ in their labels; none where the family does not apply to the limiter."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class MetricSample:
    """One number or histogram of a ``MetricFamily``."""
    @property
    def labels(self) -> dict[str, str]:
        """The labels: names with values, which are any text. No value is a key."""
    @property
    def value(self) -> int | float | MetricHistogram:
        """The value: a whole number if it is a count, a float, or a ``MetricHistogram``."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class MetricHistogram:
    """How many observations were at most some numbers."""
    @property
    def buckets(self) -> list[tuple[float, int]]:
        """Upper bounds, in rising order, each with the number of observations up to it. The last bound, infinity, is left out: its
        number is ``count``.
        """
    @property
    def sum(self) -> float:
        """The sum of the observations."""
    @property
    def count(self) -> int:
        """The number of observations."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
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
        """Which values are allowed."""
    @property
    def default(self) -> str | None:
        """The default value, as text; ``None`` when there is none."""
    @property
    def secret(self) -> bool:
        """Whether its value is a secret that is never shown."""
    @property
    def kind(self) -> Literal["duration", "number", "text"]:
        """The kind of its values: ``"duration"``, ``"number"`` or ``"text"``."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Problem:
    """The response to a denied request: a problem document (RFC 9457), or its text."""
    @property
    def status(self) -> int:
        """The status of the response: 429 or the one that a limit was given, 503 when an outage is the cause, and 400 for a request
        without a key.
        """
    @property
    def title(self) -> str:
        """The title of the problem type."""
    @property
    def detail(self) -> str:
        """One sentence for people: why the request was denied and what to do."""
    @property
    def violated(self) -> list[str]:
        """The quotas that were exceeded, by their names in ``ratelimit-policy``."""
    @property
    def json(self) -> str:
        """The problem document."""
    @property
    def text(self) -> str:
        """The detail and a line feed, for clients that prefer text."""
    def body(self, accept: str | None = None) -> tuple[str, str]:
        """The content type and the body that a client with this ``Accept`` field prefers; without one, the problem document."""
    def response(self, accept: str | None = None) -> tuple[int, list[tuple[str, str]], str]:
        """The status, the header fields and the body of the response to a client with this ``Accept`` field. With ``"application/grpc"``
        the fields have the status of a call of gRPC, too.
        """
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class ClientAddressRules:
    """Finds the client of a request: which proxies are trusted to name it, and how much of an address counts as one client.

    Parameters
    ----------
    trusted
        The networks of the proxies: addresses, networks such as ``"10.0.0.0/8"``, and the names ``"loopback"``,
        ``"link-local"`` and ``"private"``. By default no proxy is trusted, and the peer of the socket is the client.
    header
        The one header that the proxies write: ``"x-forwarded-for"`` or ``"forwarded"``, or one of a single address,
        ``"cf-connecting-ip"``, ``"true-client-ip"``, ``"x-real-ip"`` or ``"fly-client-ip"``, where nothing reaches the service
        around the proxy.
    ipv4_prefix, ipv6_prefix
        How many leading bits of an address count as one client; the defaults are 32 and 64.

    Raises
    ------
    InvalidArgumentError
        When a network cannot be read, a prefix is out of range, or networks are trusted without a header.
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
        """The header whose lines ``resolve`` needs; ``None`` if no proxy is trusted."""
    def resolve(self, peer: str, lines: Sequence[bytes] = ()) -> ClientAddress:
        """The client of a request that came from ``peer`` with these lines of the header, in the order they were received.

        ``peer`` is the address of the peer of the socket; for a Unix socket, ``"127.0.0.1"``.
        """
    def key(self, peer: str, lines: Sequence[bytes] = ()) -> str:
        """The ``key`` of the client that ``resolve`` returns, for a peer that may be any text.

        A port, brackets and a zone are ignored. Text that is no address counts as ``"unknown"``, and then no line is read.
        """
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...

@final
class ClientAddress:
    """The address of a client, and the key that it counts by."""
    @property
    def address(self) -> str:
        """The exact address."""
    @property
    def key(self) -> str:
        """The key to limit by: the same text for all addresses that count together, such as ``2001:db8:1:2::/64``."""
    def __copy__(self) -> Self: ...
    def __deepcopy__(self, _memo: object, /) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def header_fields(
    outcomes: Sequence[tuple[Policy, Decision]],
    *,
    headers: str = "ietf seconds",
) -> list[tuple[str, str]]:
    """The fields of the response to a request, as pairs of a lower-case name and a value.

    Parameters
    ----------
    outcomes
        Pairs of a policy and its decision.
    headers
        Words in any order, separated by spaces: ``ietf`` for ``ratelimit`` and ``ratelimit-policy``, ``legacy`` for
        ``x-ratelimit-*``, ``both`` or ``none``; whether ``x-ratelimit-reset`` is in ``seconds`` from now or since the ``epoch``;
        and other names of fields, such as ``ratelimit=x-quota``. A denial has ``retry-after`` in any case, unless the request can
        never be admitted.
    """

def problem(outcomes: Sequence[tuple[Policy, Decision]], *, cost: SupportsIndex | None = None) -> Problem | None:
    """The response to a request that at least one of these policies denied; ``None`` when all admit it.

    Parameters
    ----------
    outcomes
        Pairs of a policy and its decision.
    cost
        The units that the request asked for.
    """

def options() -> list[Option]:
    """Every option of a limiter that is given by name."""

# For the integrations of this package alone.

def server_wait(
    headers: _Headers,
    *,
    now: float | timedelta | None = None,
) -> float | None:
    """How many seconds a response asks its client to wait, counted from now; ``None`` if it does not say.

    The fields that are read, in their order: ``Retry-After-Ms``, ``Retry-After``, whose date is compared with that of ``Date``, and
    the policies of ``RateLimit`` that have nothing left, of which the longest time counts. A malformed field is ignored; a wait
    above 285 years is cut to that.

    Parameters
    ----------
    headers
        The header fields of the response: a mapping, such as ``response.headers``, or pairs of names, in any letter case, and values.
    now
        The time in seconds since the Unix epoch, or as a ``timedelta`` since then, with which a date is compared if the response
        has none; the default is the system's time.
    """

def advice(name: str, known: Sequence[str]) -> str:
    """What the error for an unknown option of a limit recommends, where these are known: ``use key`` for ``key_func``, or a name that is near."""

@final
class CoreGuard:
    """The options of a limit that the core knows."""
    def __new__(
        cls,
        limiter: Limiter | AsyncLimiter,
        policies: Sequence[_Policy] | None,
        *,
        by_configuration: bool,
        per_request: bool,
        scope: str | None,
        per_route: bool,
        key_parts: Sequence[str],
        missing_key: str,
        cost: int,
        costs: Sequence[SupportsIndex | None],
        methods: Sequence[str],
        headers: str,
        status: int | None,
        message: str | None,
        dry_run: bool,
        client_address: ClientAddressRules,
        count: Callable[[Any], Any] | None,
        spent: Callable[[Any], Any] | None,
        spent_each: Sequence[Callable[[Any], Any] | None],
        spent_by: str | None,
        spent_by_each: Sequence[str | None],
        ttl: float | timedelta | None,
        max_age: float | timedelta | None,
        separate_head: bool,
        count_preflights: bool,
        cors_origins: Sequence[str],
        wait: float | timedelta | None,
        max_waiting: int | None,
    ) -> Self: ...
    def applies_to(self, method: str, requested_method: str | None = None) -> bool:
        """Whether a request with this method is limited. ``requested_method`` is the header ``access-control-request-method`` of a
        request with an ``origin``, where the limit is not attached to a handler.
        """
    def cors_fields(self, origin: str | None) -> list[tuple[str, str]]:
        """The fields by which a page of this origin may read a denial."""
    @property
    def key_parts(self) -> list[tuple[str, str]]:
        """The parts of the key, each with its kind and its name."""
    @property
    def is_per_route(self) -> bool:
        """Whether the guard needs the route of a request."""
    def join_key(self, values: Sequence[str | bytes | int | None]) -> bytes | None:
        """The key of a request whose parts have these values; ``None`` when one is missing."""
    def enter(self, peer: str | None) -> tuple[RequestLimits, GuardCheck | None]:
        """Starts the first decision on a request by the address of its peer; ``None`` is a Unix socket. Returns the request's
        limits, and the check unless the request is admitted.
        """
    def enter_asgi(
        self,
        peer: str | None,
        scope: MutableMapping[str, Any],
        send: Callable[[Any], Any],
        start: Callable[[RequestLimits, Any, Any, Any], Any],
        end: Callable[[RequestLimits, Any, Any], Any],
    ) -> tuple[RequestLimits, ResponseSender, GuardCheck | None]:
        """The same for an ASGI application, with the :class:`ResponseSender` of the limits, ``scope``, ``send``, ``start`` and ``end``."""
    def start(
        self,
        limits: RequestLimits,
        key: _Key | None,
        *,
        cost: SupportsIndex | None = None,
        costs: Sequence[SupportsIndex | None] | None = None,
        route: str | None = None,
        policies: Sequence[_Policy] | None = None,
    ) -> GuardCheck | None:
        """Starts a decision on a request that may have passed other guards. ``costs`` are those of the policies that have one of their own,
        by position. Returns the check unless the request is admitted.
        """
    def start_by_configuration(self, limits: RequestLimits, attributes: RequestAttributes) -> GuardCheck | None:
        """The same for a guard that decides by the configuration of its limiter."""
    def ask_ahead(self, earlier: GuardCheck, key: _Key | None, route: str | None) -> None:
        """Lets the store decide for this guard in the call of a guard that the request meets earlier."""

@final
class GuardCheck:
    """The decision of a guard on a request that is not admitted yet."""
    @property
    def is_concluded(self) -> bool:
        """Whether the check is concluded but for the calls of ``conclude``."""
    @property
    def is_asking(self) -> bool:
        """Whether the store has to decide."""
    def ask(self, is_first: bool) -> StoreCall | None:
        """The call that asks the store next; ``None`` when nothing has to be asked any more. ``is_first`` says that no call was asked for
        before.
        """
    def ask_async(self, is_first: bool) -> Operation | None:
        """The same as an operation of an event loop, which is awaited at once."""
    def outage(self) -> tuple[PolylimitError | None, list[tuple[Policy, Decision]]] | None:
        """What ``on_outage`` hears: the error, if no decision could be made, and the policies with their decisions. ``None`` when
        the store decided.
        """
    def overrule(self, admit: bool) -> None:
        """Takes what ``on_outage`` returned."""
    def conclude(self, limits: RequestLimits) -> tuple[Problem | None, Settling | None]:
        """Returns the default response if the request is denied, and the calls that give back, all of which have to be made; ``None``
        when there are none.
        """

@final
class Settling:
    """The calls that give back, commit and cancel for the checks of a request, all of which have to be made, each after the one before
    it was answered or its caller has stopped waiting.
    """
    def __iter__(self) -> Self: ...
    def __next__(self) -> StoreCall: ...

@final
class StoreCall:
    """A call to the store on behalf of a guard. It is made once: awaited in an event loop, or by ``wait``."""
    def wait(self) -> None:
        """Makes the call and waits on this thread."""
    def __await__(self) -> Operation: ...

@final
class RequestLimits:
    """The limits of one request: what its guards have decided."""
    def __new__(cls) -> Self: ...
    @property
    def outcomes(self) -> list[tuple[Policy, Decision]]:
        """Each policy that was applied, with its newest decision. After a refund a decision shows what is left."""
    def fields(self) -> list[tuple[str, str]]:
        """The fields of the response, as pairs of a lower-case name and a value."""
    def finish(self, response: Any, *, has_failed: bool = False) -> tuple[Settling, BaseException | None]:
        """Ends the guards of a request with the head of this response, the innermost first. Returns the calls that refund, all of which have
        to be made, and the first exception that a ``count`` raised, which keeps its units. ``has_failed`` says that the response stands
        for one that the handler did not make.
        """
    @property
    def holds(self) -> bool:
        """Whether ``end`` has to be called when the response is done or its client has gone."""
    @property
    def reads_response(self) -> bool:
        """Whether ``read_head`` has to be called with the fields of the response, because it reports what was spent."""
    def read_head(self, fields: Sequence[tuple[str | bytes, str | bytes]]) -> bool:
        """Reads the fields of the response, pairs of a name and a value. Returns whether ``read_body`` has to be called with each part of the
        body.
        """
    def read_body(self, part: Any) -> None:
        """Reads the next part of the body: bytes, or text that is sent as UTF-8. It is not kept."""
    def end(self) -> tuple[Settling, BaseException | None]:
        """Ends the reservations of a request whose response is done or whose client has gone, the innermost first. Returns the calls that
        commit and cancel, all of which have to be made, and the first exception that a ``spent`` raised, in whose place what was reserved
        is committed.
        """
    @property
    def must_finish(self) -> bool:
        """Whether ``finish`` has to be called with the response."""
    def add_to(self, headers: Any) -> None:
        """Ends the guards and sets the fields in the headers of a Werkzeug response."""

@final
class ResponseSender:
    """The ``send`` that an ASGI application gets: adds the header fields when the response starts. It returns the awaitable of the
    original ``send``, so that it adds no step to the event loop's work.
    """
    def __new__(
        cls,
        limits: RequestLimits,
        scope: MutableMapping[str, Any],
        send: Callable[[Any], Any],
        start: Callable[[Any, Any, Any, Any], Any],
        end: Callable[[Any, Any, Any], Any],
    ) -> Self: ...
    @property
    def has_started(self) -> bool: ...
    def __call__(self, message: Any) -> Any: ...

@final
class TrioCall:
    """The same for the coroutine of `polylimit._trio`."""
    def fileno(self) -> int: ...
    def take(self) -> tuple[Any] | None:
        """A tuple of the result; ``None`` if it is not there yet."""
    def cancel(self) -> None: ...
