"""Ready-made values of the option ``key``: by which key a request counts. They work with every framework.

A key is one of them, or several: ``key=keys.join(keys.header("x-tenant"), keys.user())``. Their texts work as well:
``key=["header:x-tenant", "user"]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from polylimit._core import ClientAddressRules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

__all__ = ["KeyPart", "RequestInfo", "client_address", "cookie", "header", "join", "path", "user"]


class RequestInfo(Protocol):
    """What an integration reads from its framework's request, and the response that it makes to a denial."""

    @property
    def request(self) -> Any:
        """The argument of functions of the request."""

    def method(self) -> str:
        """Return the request's method."""

    def peer(self) -> str | None:
        """Return the address of the peer of the socket; ``None`` for a Unix socket."""

    def header(self, name: str) -> list[bytes]:
        """Return the values of all lines of a header, in the order they were received."""

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie, if there is one."""

    def path(self, name: str) -> str | None:
        """Return the value of a parameter of the route's path, if there is one."""

    def user(self) -> Awaitable[str | None] | str | None:
        """Return the identity of the authenticated user, if there is one."""

    def target(self) -> str | bytes:
        """Return the path as the framework's router sees it, with escapes, and with the prefixes of all mounts."""

    def router_paths(self) -> int:
        """Return how the router reads paths, as :class:`polylimit.RequestAttributes` takes it."""

    def lines(self) -> list[tuple[bytes, bytes]]:
        """Return all lines of the header, in the order they were received."""

    def route(self) -> str | None:
        """Return the framework's name of the route, which is the same in every process."""

    def pattern(self) -> str | None:
        """Return the pattern of the route with all prefixes, such as ``/users/{id}``; ``None`` before the routing."""

    def response(self, status: int, fields: list[tuple[str, str]], body: str) -> Any:
        """Return a response in the form of the framework."""

    def with_cors(self, response: Any, fields: list[tuple[str, str]]) -> Any:
        """Return a response with these fields, unless it has ``access-control-allow-origin`` already."""


class KeyPart:
    """A part of a key.

    Its text is the same in every language: ``address``, ``user``, ``header:NAME``, ``cookie:NAME`` or ``path:NAME``.
    """

    def __init__(self, text: str, rules: ClientAddressRules | None = None) -> None:
        self.text = text
        #: How the client's address is found, for the part ``address``.
        self.rules = rules

    def __repr__(self) -> str:
        rules = "" if self.rules is None else f", {self.rules!r}"
        return f"KeyPart({self.text!r}{rules})"


def client_address(
    trusted: Sequence[str] = (),
    header: str | None = None,
    *,
    ipv4_prefix: int | None = None,
    ipv6_prefix: int | None = None,
) -> KeyPart:
    """Count by the client's address, as :class:`polylimit.ClientAddressRules` finds it.

    By default no proxy is trusted, and the peer of the socket is the client. Behind proxies, name their networks and
    the one header that they write: ``client_address(["10.0.0.0/8"], "x-forwarded-for")``.

    A server or a middleware may report a peer that is no address, such as text that a client sent in a trusted header.
    Such requests count as ``"unknown"``, all as one client. Requests by a Unix socket count as ``127.0.0.1``.
    """
    rules = ClientAddressRules(trusted, header, ipv4_prefix=ipv4_prefix, ipv6_prefix=ipv6_prefix)
    return KeyPart("address", rules)


def user() -> KeyPart:
    """Count by the authenticated user, as the framework knows it."""
    return KeyPart("user")


def header(name: str) -> KeyPart:
    """Count by the value of a header, such as an API key that was verified before."""
    return _named("header", name)


def cookie(name: str) -> KeyPart:
    """Count by the value of a cookie."""
    return _named("cookie", name)


def path(name: str) -> KeyPart:
    """Count by a parameter of the route's path, such as ``tenant`` of ``/tenants/{tenant}``.

    A middleware that runs before the routing does not know it: then it is missing.
    """
    return _named("path", name)


def _named(kind: str, name: str) -> KeyPart:
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}: allowed is str")
    return KeyPart(f"{kind}:{name}")


def join(*parts: KeyPart | str) -> list[KeyPart | str]:
    """Count by several parts together."""
    return list(parts)
