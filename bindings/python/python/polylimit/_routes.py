"""What an ASGI scope says about the path and the route of a request.

Starlette, and FastAPI with it, change the scope while they route: ``root_path`` grows by the prefix of each mount, and
``route`` is the route in the end. The patterns of the mounts are in the routers alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping

_PARAMETER = re.compile(r"{([a-zA-Z_][a-zA-Z0-9_]*)(?::([a-zA-Z_][a-zA-Z0-9_]*))?}")
#: The attribute of a router that holds the prefixes of its mounts that have no parameters, and its hosts.
_STATIC, _HOSTS = "_polylimit_mounts", "_polylimit_hosts"
#: Stands for a mount that no router knows.
_UNKNOWN_MOUNT = "/{mount}"
#: The patterns of the paths of routes, which are those of the program.
_patterns: dict[str, str] = {}


def full_path(scope: MutableMapping[str, Any], *, strips_root: bool) -> str:
    """Return the decoded path with the prefixes of all mounts, and without the one that a proxy has added."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if not root:
        return path
    proxy: str = scope.get("app_root_path", root)
    mounts = root[len(proxy) :]
    if mounts and _is_relative(scope, path, root, mounts):
        return mounts + path
    if strips_root and _is_within(path, proxy):
        return path[len(proxy) :] or "/"
    return path


def _is_relative(scope: MutableMapping[str, Any], path: str, root: str, mounts: str) -> bool:
    """Whether mounts have removed their prefixes from the path, as those of Starlette before 0.33 did."""
    if not _is_within(path, root):
        return True
    raw: bytes | None = scope.get("raw_path")
    return raw is not None and unquote(raw.decode("latin-1")) in (mounts + path, root + path)


def _is_within(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/")


def matched_route(scope: MutableMapping[str, Any]) -> Any:
    """Return the route of a request with the prefixes of included routers; ``None`` if it has reached none yet."""
    route = scope.get("route")
    # From FastAPI 0.137 on, the route of an included router has its effective path and dependencies here. The entry may
    # be one of an application around a mounted one.
    context = (scope.get("fastapi") or {}).get("effective_route_context")
    if context is not None:
        if route is not None and context.original_route is route:
            return context
        inner = getattr(context, "starlette_route", None)
        if inner is not None and hasattr(inner, "endpoint") and inner.endpoint is scope.get("endpoint"):
            return inner
    # A mount has no endpoint.
    if hasattr(route, "endpoint"):
        return route
    endpoint = scope.get("endpoint")
    if endpoint is None or "router" not in scope:
        return None
    # Starlette before 1.0 names the endpoint alone.
    path = full_path(scope, strips_root=True)
    _, routes = _mounts_on_the_way(scope) or ("", ())
    rest = path[len(_mounted_at(scope)) :]
    for one in routes:
        if getattr(one, "endpoint", None) is endpoint and one.path_regex.match(rest):
            return one
    return None


def _mounted_at(scope: MutableMapping[str, Any]) -> str:
    root: str = scope.get("root_path", "")
    rest: str | None = scope.get("route_path")
    if rest is None:
        return root[len(scope.get("app_root_path", root)) :]
    # Starlette 0.33 and 0.34 keep the rest of the path, and the root as it was.
    path = full_path(scope, strips_root=True)
    return path[: len(path) - len(rest)] if path.endswith(rest) else ""


def mount_pattern(scope: MutableMapping[str, Any]) -> str:
    """Return the patterns of the mounts that a request has passed; it is empty outside of any."""
    mounted_at = _mounted_at(scope)
    if not mounted_at:
        return ""
    router = scope.get("router")
    static: set[str] | None = getattr(router, _STATIC, None)
    if static is None:
        static = set()
        if router is not None:
            setattr(router, _STATIC, static)
    if mounted_at in static:
        return mounted_at
    found = _mounts_on_the_way(scope)
    if found is None:
        return _UNKNOWN_MOUNT
    if found[0] == mounted_at:
        static.add(mounted_at)
    return found[0]


def _mounts_on_the_way(scope: MutableMapping[str, Any]) -> tuple[str, Iterable[Any]] | None:
    """Return the patterns of the mounts that a request has passed, and the routes within the last one."""
    return None if "router" not in scope else _follow(scope["router"].routes, _mounted_at(scope))


def _follow(routes: Iterable[Any], rest: str) -> tuple[str, Iterable[Any]] | None:
    routes = list(_flat(routes))
    if not rest:
        return "", routes
    for one in routes:
        # A mount matches what is below it, and has no endpoint.
        if hasattr(one, "endpoint") or not hasattr(one, "path_regex"):
            continue
        match = one.path_regex.match(f"{rest}/")
        if match is None or "path" not in match.groupdict():
            continue
        found = _follow(_routes_of(one), f"/{match['path']}".rstrip("/"))
        if found is not None:
            return path_pattern(one.path) + found[0], found[1]
    return None


def _flat(routes: Iterable[Any]) -> Iterator[Any]:
    """Return routes with those of included routers and of hosts."""
    for one in routes:
        if hasattr(one, "effective_route_contexts"):
            for context in one.effective_route_contexts():
                yield getattr(context, "starlette_route", None) or context
        elif hasattr(one, "host_regex"):
            yield from _flat(_routes_of(one))
        else:
            yield one


def _routes_of(mount: Any) -> Iterable[Any]:
    routes: Iterable[Any] = mount.routes
    if routes:
        return routes
    # Middleware around an application keeps it by this name.
    app = getattr(mount, "app", None)
    while app is not None and not hasattr(app, "routes"):
        app = getattr(app, "app", None)
    return getattr(app, "routes", ())


def host_pattern(scope: MutableMapping[str, Any], route: Any) -> str:
    """Return the pattern of the host that a route belongs to; it is empty for a route of all hosts."""
    router = scope.get("router")
    if router is None:
        return ""
    known: tuple[int, list[Any]] | None = vars(router).get(_HOSTS)
    if known is None or known[0] != len(router.routes):
        known = len(router.routes), [one for one in router.routes if hasattr(one, "host_regex")]
        setattr(router, _HOSTS, known)
    if not known[1]:
        return ""
    # Starlette takes the first line of several.
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1").split(":")[0]
    mounted_at = _mounted_at(scope)
    for one in known[1]:
        if one.host_regex.match(host) or one.host_regex.match(host.lower()):
            _, routes = _follow(_routes_of(one), mounted_at) or ("", ())
            if any(inner is route for inner in routes):
                return path_pattern(one.host)
    return ""


def path_pattern(path: str) -> str:
    """Return the pattern of a route with its parameters written ``{name}``, and ``{*name}`` for the rest of a path."""
    found = _patterns.get(path)
    if found is None:
        found = _patterns[path] = _PARAMETER.sub(_parameter, path)
    return found


def _parameter(found: re.Match[str]) -> str:
    return f"{{*{found[1]}}}" if found[2] == "path" else f"{{{found[1]}}}"
