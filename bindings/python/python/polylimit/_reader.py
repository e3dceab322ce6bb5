"""What the integrations of frameworks read alike; see :class:`polylimit.keys.RequestInfo`."""

from __future__ import annotations

from typing import Any


class RequestReader:
    """Reads a request whose framework knows neither users nor spellings of paths, unless an integration says more."""

    def __init__(self, request: Any) -> None:
        self.request = request

    def method(self) -> str:
        """Return the request's method."""
        return str(self.request.method)

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie, if there is one."""
        value: str | None = self.request.cookies.get(name)
        return value

    def user(self) -> str | None:
        """Return nothing."""
        return None

    def router_paths(self) -> int:
        """Return that the router reads paths as they are."""
        return 0

    def with_cors(self, response: Any, fields: list[tuple[str, str]]) -> Any:
        """Return a response with these fields, unless it has ``access-control-allow-origin`` already."""
        if "access-control-allow-origin" not in response.headers:
            response.headers.extend(fields)
        return response


class MatchReader(RequestReader):
    """Reads a request that has its header in a ``multidict``, and a ``match_info`` when it is routed."""

    def header(self, name: str) -> list[bytes]:
        """Return the values of all lines of a header, in the order they were received."""
        return [value.encode("utf-8", "surrogateescape") for value in self.request.headers.getall(name, [])]

    def path(self, name: str) -> str | None:
        """Return the value of a parameter of the route's path, if there is one."""
        value = self.request.match_info.get(name)
        return None if value is None else str(value)

    def parameter(self, name: str, *, is_rest: bool) -> str:
        """Return a parameter of the route as patterns have it: one that may hold slashes is the rest of the path."""
        is_rest = is_rest or "/" in str(self.request.match_info.get(name, ""))
        return f"{{*{name}}}" if is_rest else f"{{{name}}}"
