"""A router that ignores nearly everything that a router can ignore, and the document of limits that fits it."""

from __future__ import annotations

import re
from urllib.parse import unquote

QUOTAS = "3/hour fixed_window"
HANDLERS = {
    "login": ("POST", re.compile(r"/login")),
    "report": ("GET", re.compile(r"/report")),
    "user": ("GET", re.compile(r"/v1/users/[^/]+")),
    "a": ("GET", re.compile(r"/a/1")),
    "b": ("GET", re.compile(r"/b/1")),
}
ROUTES = {"login": "/login", "report": "/report", "user": "/v1/users/{id}"}
#: What a router may do to paths, as the table `paths` of a document declares it.
PROPERTIES = {"ignore_case": "true", "parameters": '"drop"', "suffix": '"drop"'}


class Router:
    """A router with some of the properties; it always decodes escapes and ignores empty segments."""

    def __init__(self, properties: frozenset[str] = frozenset(PROPERTIES), *, resolves_dots: bool = True) -> None:
        self.properties = properties
        #: Whether `.` and `..` are resolved; if not, they are segments like any other.
        self.resolves_dots = resolves_dots

    def find(self, method: str, target: str) -> str:
        """Return the name of the handler; empty when there is none."""
        path = self.find_path(target)
        method = "GET" if method == "HEAD" else method
        for name, (of, pattern) in HANDLERS.items():
            if method == of and pattern.fullmatch(path):
                return name
        return ""

    def find_path(self, target: str) -> str:
        """Return the path that is compared."""
        path = re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", "", target)
        path = unquote(re.split(r"[?#]", path, maxsplit=1)[0])
        if "ignore_case" in self.properties:
            path = path.lower()
        segments: list[str] = []
        for segment in path.split("/"):
            name = segment.split(";")[0] if "parameters" in self.properties else segment
            if name == ".." and self.resolves_dots:
                del segments[-1:]
            elif name != "" and not (name == "." and self.resolves_dots):
                segments.append(name)
        path = "/" + "/".join(segments)
        return re.sub(r"(?<=[^/])\.[A-Za-z]+$", "", path) if "suffix" in self.properties else path


def document(properties: frozenset[str], by: str = "path") -> str:
    """Return the document of limits for a router with these properties, with rules by path or by route."""
    lines = ["polylimit = 1"]
    if properties:
        lines += ["[paths]", *(f"{name} = {value}" for name, value in PROPERTIES.items() if name in properties)]
    for name, route in ROUTES.items():
        lines += [
            f"[policies.{name}]",
            f'quotas = "{QUOTAS}"',
            "[[rules]]",
            f'match = {{ method = "{HANDLERS[name][0]}", {by} = "{route}" }}',
            f'apply = [{{ policy = "{name}", key = "{{header.x-client}}" }}]',
        ]
    return "\n".join(lines)
