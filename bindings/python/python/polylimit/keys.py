"""Ready-made values of the option ``key``: by which key a request counts. They work with every framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polylimit._core import ClientAddressRules

if TYPE_CHECKING:
    from collections.abc import Sequence


class RequestInfo(Protocol):
    """What an integration reads from its framework's request."""

    def peer(self) -> str | None:
        """Return the address of the peer of the socket; ``None`` for a Unix socket."""

    def header(self, name: str) -> list[bytes]:
        """Return the values of all lines of a header, in the order they were received."""

    def user(self) -> str | None:
        """Return the identity of the authenticated user, if there is one."""

    def route(self) -> str | None:
        """Return the framework's name of the route, which is the same in every process."""


class KeySource(Protocol):
    """Reads the key from a request of any framework."""

    def read(self, info: RequestInfo) -> str:
        """Return the key of a request."""


class ClientAddress:
    """The client's address, which :class:`polylimit.ClientAddressRules` finds."""

    def __init__(self, rules: ClientAddressRules) -> None:
        self.rules = rules
        self._key = rules.key
        self._header = rules.header

    def read(self, info: RequestInfo) -> str:
        """Return the key of a request."""
        # The peer of a Unix socket is on this host.
        peer = info.peer() or "127.0.0.1"
        return self._key(peer) if self._header is None else self._key(peer, info.header(self._header))


class _Header:
    def __init__(self, name: str, otherwise: KeySource) -> None:
        self._name = name.lower()
        self._otherwise = otherwise

    def read(self, info: RequestInfo) -> str:
        lines = info.header(self._name)
        if not lines:
            return self._otherwise.read(info)
        return f"{self._name}:{b', '.join(lines).decode('latin-1')}"


class _User:
    def __init__(self, otherwise: KeySource) -> None:
        self._otherwise = otherwise

    def read(self, info: RequestInfo) -> str:
        user = info.user()
        return self._otherwise.read(info) if user is None else f"user:{user}"


def client_address(
    trusted: Sequence[str] = (),
    header: str | None = None,
    *,
    ipv4_prefix: int | None = None,
    ipv6_prefix: int | None = None,
) -> KeySource:
    """Count by the client's address, as :class:`polylimit.ClientAddressRules` finds it.

    By default no proxy is trusted, and the peer of the socket is the client. Behind proxies, name their networks and
    the one header that they write: ``client_address(["10.0.0.0/8"], "x-forwarded-for")``.

    A server or a middleware may report a peer that is no address, such as text that a client sent in a trusted header.
    Such requests count as ``"unknown"``, all as one client. Requests by a Unix socket count as ``127.0.0.1``.
    """
    rules = ClientAddressRules(trusted, header, ipv4_prefix=ipv4_prefix, ipv6_prefix=ipv6_prefix)
    return ClientAddress(rules)


def header(name: str, *, otherwise: KeySource | None = None) -> KeySource:
    """Count by the value of a header, such as an API key that was verified before.

    Requests without it count by ``otherwise``; the default is the client's address.
    """
    return _Header(name, otherwise or client_address())


def user(*, otherwise: KeySource | None = None) -> KeySource:
    """Count by the authenticated user, as the framework knows it.

    Requests without one count by ``otherwise``; the default is the client's address.
    """
    return _User(otherwise or client_address())
