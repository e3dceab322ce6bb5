"""The limits of a view, as those before it see them: a limit asks for later ones ahead, and an override replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from polylimit.guard import Guard

#: The attribute of a view that holds its limits.
_ATTRIBUTE = "_polylimit_view"


def wsgi_target(environ: Mapping[str, Any]) -> str:
    """Return the path of a WSGI request as the client sent it, where the server tells it."""
    for name in ("RAW_URI", "REQUEST_URI"):
        sent: str | None = environ.get(name)
        if sent is not None and sent.startswith("/"):
            return sent
    # WSGI has the bytes of the path as characters.
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    return quote(path.encode("latin-1"))


class ViewLimit(NamedTuple):
    """A limit of a view, or an exemption, which has no guard."""

    guard: Guard | None
    #: Whether it takes the place of the application's limits.
    is_override: bool = True


class ViewLimits:
    """The limits of a view, the outermost first."""

    def __init__(self, limits: Iterable[ViewLimit] = ()) -> None:
        self._limits = tuple(limits)
        self.guards = tuple(one.guard for one in self._limits if one.guard is not None)
        self._overrides = [one.guard for one in self._limits if one.is_override]

    def override(self, method: str) -> bool:
        """Whether the application's limits do not apply to a request with this method."""
        return bool(self._overrides) and any(
            guard is None or guard.core.applies_to(method) for guard in self._overrides
        )

    def within(self, limit: ViewLimit) -> ViewLimits:
        """Return these limits inside another one."""
        return ViewLimits([limit, *self._limits])


NO_LIMITS = ViewLimits()


def limits_of(view: Any) -> ViewLimits:
    """Return the limits of a view."""
    limits: ViewLimits = getattr(view, _ATTRIBUTE, NO_LIMITS)
    return limits


def set_limits(wrapper: Callable[..., Any], view: Any, limit: ViewLimit) -> None:
    """Let a wrapper have the limits of its view inside another one."""
    setattr(wrapper, _ATTRIBUTE, limits_of(view).within(limit))
