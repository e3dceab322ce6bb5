"""The limits of a view, as those before it see them: a limit asks for later ones ahead, and an override replaces it.

A limit leaves a mark on the function that it returns. Frameworks and ``functools.wraps`` copy the attributes of a
function to the one around it, so that the outermost function has the marks of all limits within.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polylimit._guard import Guard

#: The attributes of a view that hold its limits begin with this, so that copying attributes merges them.
_PREFIX = "_polylimit_limit_"
#: The attribute of a decorator that holds its limit.
_OF_DECORATOR = "_polylimit_decorator"
#: The attribute of a function that holds the one which limits it.
_LIMITED = "_polylimit_limited"

#: A parameter of a rule, as Werkzeug reads it.
_PARAMETER = re.compile(r"<(?:([a-zA-Z_]\w*)(?:\(.*?\))?:)?([a-zA-Z_]\w*)>")

_numbers = itertools.count()


def wsgi_target(environ: Mapping[str, Any]) -> str:
    """Return the path of a WSGI request as the router sees it: decoded once by the server, and quoted again."""
    # WSGI has the bytes of the path as characters.
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(path.encode("latin-1"))


def rule_pattern(rule: Any) -> str:
    """Return the pattern of a rule of Werkzeug."""

    def parameter(match: re.Match[str]) -> str:
        converter = rule.map.converters.get(match[1] or "default")
        return f"{{{match[2]}}}" if getattr(converter, "part_isolating", True) else f"{{*{match[2]}}}"

    pattern: str = rule.rule
    return _PARAMETER.sub(parameter, pattern)


def view_name(app: Any, endpoint: str) -> str:
    """Return the first of the endpoints that a view has in its blueprint: it has one budget under all of them."""
    views: dict[str, Any] = app.view_functions
    view, part = views.get(endpoint), endpoint.rpartition(".")[0]
    same = (other for other in views if views[other] is view and other.rpartition(".")[0] == part)
    return min(same, default=endpoint)


def blueprint_name(app: Any, request: Any, blueprint: Any) -> str:
    """Return the name under which an application has a blueprint, with those of the blueprints around it."""
    registered = app.blueprints
    names: Iterable[str] = request.blueprints
    return next((name for name in names if registered.get(name) is blueprint), str(blueprint.name))


def check_function(kind: str, given: Any, *, methods_of: str = "a class") -> None:
    """Raise unless a decorator got what it can limit, such as a handler."""
    if isinstance(given, type) or not callable(given):
        raise TypeError(f"the decorated {kind} is {given!r}: allowed is a function, or a method of {methods_of}")


@dataclass(eq=False)
class ViewLimit:
    """A limit of a view, or an exemption, which has no guard."""

    guard: Guard | None
    #: Whether it takes the place of the application's limits.
    is_override: bool = True
    _attribute: str = field(default_factory=lambda: f"{_PREFIX}{next(_numbers):09}", init=False, repr=False)

    def mark(self, function: Any) -> None:
        """Mark a function as one that limits a view."""
        setattr(function, self._attribute, self)

    def mark_decorator(self, decorator: Callable[..., Any]) -> None:
        """Mark a decorator as the one that adds this limit to a view."""
        setattr(decorator, _OF_DECORATOR, self)


class ViewLimits:
    """The limits of a view, the outermost first."""

    def __init__(self, limits: Iterable[ViewLimit] = (), of_methods: Iterable[ViewLimit] = ()) -> None:
        self._limits = (*limits, *of_methods)
        self._overrides = [one.guard for one in self._limits if one.is_override]
        #: Those whose decision another limit can ask for, before the request reaches them.
        self.guards = tuple(
            one.guard
            for one in self._limits
            # The route of a method has another name.
            if one.guard is not None and not (one in of_methods and one.guard.core.is_per_route)
        )

    def override(self, method: str) -> bool:
        """Whether the application's limits do not apply to a request with this method."""
        return bool(self._overrides) and any(
            guard is None or guard.core.applies_to(method) for guard in self._overrides
        )


NO_LIMITS = ViewLimits()


class ClassView(NamedTuple):
    """What a view that belongs to a class calls."""

    #: The method of the class that calls that of the request's method.
    dispatch: Any
    #: The method of the request's method, if there is one.
    handler: Any
    #: Decorators that the class applies to its methods.
    decorators: tuple[Any, ...] = ()


def limits_of(view: Any, parts: ClassView | None = None) -> ViewLimits:
    """Return the limits of a view; for one of a class also those of the methods that it calls."""
    if parts is None:
        found = _marks(view)
        return ViewLimits(found.values()) if found else NO_LIMITS
    own = {**_marks(view), **_marks(parts.dispatch)}
    of_methods = _marks(parts.handler)
    for decorator in parts.decorators:
        limit = getattr(decorator, _OF_DECORATOR, None)
        if limit is not None:
            of_methods[str(id(limit))] = limit
    if not own and not of_methods:
        return NO_LIMITS
    return ViewLimits(own.values(), [limit for name, limit in of_methods.items() if name not in own])


def _marks(function: Any) -> dict[str, ViewLimit]:
    """Return the limits of which a function has the marks, the outermost first."""
    attributes = getattr(function, "__dict__", {})
    # Decorators above one another are made in their order.
    return {name: attributes[name] for name in sorted(attributes) if name.startswith(_PREFIX)}


def note_limited(view: Any, function: Any) -> None:
    """Note with a view the function that limits it."""
    if isinstance(view, FunctionType):
        # A copy of this attribute in another function is still about this view.
        setattr(view, _LIMITED, (view, function))


def limited_version(view: Any) -> Any:
    """Return the function that limits a view which was registered without it; ``None`` for a view without limits."""
    found = None
    while True:
        limited, function = getattr(view, _LIMITED, (None, None))
        if limited is not view:
            return found
        found = view = function
