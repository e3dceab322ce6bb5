"""Whom a request counts for: ready-made answers for every framework's ``key``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from polylimit._core import ClientAddressRules

if TYPE_CHECKING:
    from collections.abc import Sequence


class Facts(Protocol):
    """What a framework says about a request."""

    def peer(self) -> str | None:
        """Give the address of the other end of the socket; ``None`` for a Unix socket."""

    def header(self, name: str) -> list[bytes]:
        """Give the values of all lines of a header, in the order they were received."""

    def user(self) -> str | None:
        """Give the identity of the authenticated user, if there is one."""

    def route(self) -> str | None:
        """Give what the framework calls the route of the request; the same in every process."""


class ReadyKey(Protocol):
    """A key that is read from any framework's request."""

    def of(self, facts: Facts) -> str:
        """Give the key of a request."""


class ClientAddress:
    """The client's address, by rules."""

    def __init__(self, rules: ClientAddressRules) -> None:
        self.rules = rules
        self._key = rules.key
        self._header = rules.header

    def of(self, facts: Facts) -> str:
        """Give the key of a request."""
        # The other end of a Unix socket is on this host.
        peer = facts.peer() or "127.0.0.1"
        return self._key(peer) if self._header is None else self._key(peer, facts.header(self._header))


class _Header:
    def __init__(self, name: str, otherwise: ReadyKey) -> None:
        self._name = name.lower()
        self._otherwise = otherwise

    def of(self, facts: Facts) -> str:
        lines = facts.header(self._name)
        if not lines:
            return self._otherwise.of(facts)
        return f"{self._name}:{b', '.join(lines).decode('latin-1')}"


class _User:
    def __init__(self, otherwise: ReadyKey) -> None:
        self._otherwise = otherwise

    def of(self, facts: Facts) -> str:
        user = facts.user()
        return self._otherwise.of(facts) if user is None else f"user:{user}"


def client_address(
    trusted: Sequence[str] = (),
    header: str | None = None,
    *,
    ipv4_prefix: int | None = None,
    ipv6_prefix: int | None = None,
) -> ReadyKey:
    """Count by the client's address, as :class:`polylimit.ClientAddressRules` finds it.

    Nobody is trusted unless told otherwise: then the other end of the socket is the client. Behind proxies, name their
    networks and the one header that they write: ``client_address(["10.0.0.0/8"], "x-forwarded-for")``.

    Where a server or a middleware says the other end of the socket by text that is no address, such as what a client
    made up in a header that was believed, the request counts by ``"unknown"``: all such requests are one client. Those
    that come by a Unix socket count as ``127.0.0.1``.
    """
    rules = ClientAddressRules(trusted, header, ipv4_prefix=ipv4_prefix, ipv6_prefix=ipv6_prefix)
    return ClientAddress(rules)


def header(name: str, *, otherwise: ReadyKey | None = None) -> ReadyKey:
    """Count by the value of a header, such as an API key that was checked before.

    Requests without it count by ``otherwise``: the other end of the socket unless told otherwise.
    """
    return _Header(name, otherwise or client_address())


def user(*, otherwise: ReadyKey | None = None) -> ReadyKey:
    """Count by the authenticated user, as the framework knows it.

    Requests without one count by ``otherwise``: the other end of the socket unless told otherwise.
    """
    return _User(otherwise or client_address())
