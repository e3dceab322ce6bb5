"""The list of variants, and the bytes of a request that one of them stands for."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Stands in requests for the client, which is another one each time.
CLIENT = "@client@"
LIST = Path(__file__).resolve().parent.parent / "variants.toml"
FIELDS = {
    "name",
    "target",
    "method",
    "headers",
    "body",
    "type",
    "chunked",
    "version",
    "host",
    "client_field",
    "only",
    "only_handlers",
    "runs",
    "ignores",
}


@dataclass(frozen=True)
class Handler:
    """A handler that all applications have: its name, and the request that reaches it."""

    name: str
    method: str
    path: str


HANDLERS = {
    handler.name: handler
    for handler in (
        Handler("login", "POST", "/login"),
        Handler("report", "GET", "/report"),
        Handler("user", "GET", "/v1/users/7"),
    )
}


@dataclass(frozen=True)
class Variant:
    """One way of spelling a request; the fields are those of a line of the list."""

    name: str
    target: str = "{path}"
    method: str = "{method}"
    headers: tuple[str, ...] = ()
    body: str | None = None
    type: str = ""
    chunked: bool = False
    version: str = "1.1"
    #: The field `Host`; none is sent when it is empty.
    host: str = "{authority}"
    client_field: str = "x-client"
    #: Only handlers of these methods, and of these names; all when empty.
    only: tuple[str, ...] = ()
    only_handlers: tuple[str, ...] = ()
    #: Every application runs the handler for it.
    runs: bool = False
    #: What a router ignores that runs the handler for it, in the words of docs/frameworks.md.
    ignores: str = ""

    def fits(self, handler: Handler) -> bool:
        """Return whether the variant makes sense for a handler."""
        of_method = not self.only or handler.method in self.only
        return of_method and (not self.only_handlers or handler.name in self.only_handlers)


#: The request itself, as every application documents it.
PLAIN = Variant("plain", runs=True)


@dataclass(frozen=True)
class Request:
    """What is sent: the parts for HTTP/2, and all bytes for the versions before."""

    method: str
    target: str
    host: str
    version: str
    #: The first names the client.
    headers: tuple[str, ...]
    body: bytes | None = None
    chunked: bool = False

    @property
    def line(self) -> str:
        """The request line."""
        return f"{self.method} {self.target} HTTP/{self.version}"

    @functools.cached_property
    def raw(self) -> bytes:
        """All bytes, for versions before HTTP/2; the client is written as `CLIENT`."""
        lines = [self.line]
        if self.host:
            lines.append(f"Host: {self.host}")
        lines.extend(self.headers)
        body = self.body or b""
        if self.body is not None and self.chunked:
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        elif self.body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body


def read_variants(path: Path = LIST) -> list[Variant]:
    """Read the list; a field that is not known, and a name that occurs twice, are mistakes."""
    variants: list[Variant] = []
    for line in tomllib.loads(path.read_text())["variants"]:
        unknown = set(line) - FIELDS
        if unknown:
            raise ValueError(f"{path.name}: variant {line.get('name')!r}: unknown field {sorted(unknown)}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in line.items()
        }
        variants.append(Variant(**values))
    names = [variant.name for variant in variants]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"{path.name}: duplicate names: {duplicates}")
    return variants


def spellings(path: str) -> dict[str, str]:
    """Return what the placeholders of targets stand for."""
    segments = path[1:].split("/")
    front, rest = f"/{segments[0]}", path[1 + len(segments[0]) :]
    upper_hex, lower_hex = escaped_letters(path, "%{:02X}"), escaped_letters(path, "%{:02x}")
    first = segments[0][0]
    return {
        "path": path,
        "segments": path[1:],
        "upper": path.upper(),
        "mixed": alternate_case(path),
        "front": front,
        "front_upper": front.upper(),
        "rest": rest,
        "head": path[: -len(segments[-1]) - 1],
        "last": segments[-1],
        "encoded": f"/%{ord(first):02X}{path[2:]}",
        "encoded_all": upper_hex,
        "encoded_all_lower": lower_hex,
        "encoded_upper": escaped_letters(path.upper(), "%{:02X}"),
        "double": f"/%25{ord(first):02X}{path[2:]}",
        "overlong": f"/%C1%{ord(first) + 0x40:02X}{path[2:]}",
        "percent_u": f"/%u00{ord(first):02X}{path[2:]}",
        "wide": "".join(escape(chr(ord(letter) + 0xFEE0)) if letter.isalpha() else letter for letter in path),
        "dropped": "".join(f"/{segment};a=b" for segment in segments),
        "double_slashes": path.replace("/", "//")[1:],
        "2F": "/" + "%2F".join(segments),
        "2f": "/" + "%2f".join(segments),
        "5C": "/" + "%5C".join(segments),
        "backslash": "/" + "\\".join(segments),
        "other_value": path[: -len(segments[-1])] + "8",
    }


def alternate_case(text: str) -> str:
    """Return the letters of a text in upper and lower case in turn."""
    upper = False
    out = []
    for letter in text:
        if letter.isalpha():
            upper = not upper
        out.append(letter.upper() if upper else letter.lower())
    return "".join(out)


def escaped_letters(text: str, form: str) -> str:
    """Return a text with each of its letters escaped."""
    return "".join(form.format(ord(letter)) if letter.isalpha() else letter for letter in text)


def escape(text: str) -> str:
    """Return the bytes of a text as escapes."""
    return "".join(f"%{byte:02X}" for byte in text.encode())


@functools.cache
def request_of(variant: Variant, handler: Handler, port: int) -> Request:
    """Make the request of a variant, with `CLIENT` in place of its client."""
    names = spellings(handler.path) | {
        "method": handler.method,
        "method_lower": handler.method.lower(),
        "other": "POST" if handler.method == "GET" else "GET",
        "authority": f"127.0.0.1:{port}",
        "port": str(port),
    }

    def fill(text: str) -> str:
        return text.format(**names)

    method = fill(variant.method)
    body = None if variant.body is None else fill(variant.body).encode()
    # A request that has a body by its method says that it is empty.
    if body is None and method.upper() not in ("GET", "HEAD", "OPTIONS", "QUERY") and not variant.chunked:
        body = b""
    headers = [f"{variant.client_field}: {CLIENT}", *map(fill, variant.headers)]
    if variant.type:
        headers.append(f"Content-Type: {variant.type}")
    return Request(
        method=method,
        target=fill(variant.target),
        host=fill(variant.host),
        version=variant.version,
        headers=tuple(headers),
        body=body,
        chunked=variant.chunked,
    )
