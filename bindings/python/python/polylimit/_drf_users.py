"""The users of Django REST framework, whose views authenticate their clients by themselves."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import APIException

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.urls import ResolverMatch
    from rest_framework.views import APIView

#: The attribute of Django's request that holds that of the framework whose client is authenticated.
_AUTHENTICATED = "_polylimit_authenticated"
#: The attribute of a class of views, or of its method, that uses such a request.
_SHARES = "_polylimit_shares"


def user_of(request: HttpRequest, match: ResolverMatch) -> Any:
    """Return the user of a request before its view is called, as the view authenticates it; ``None`` if it does not.

    The view then uses the same request of the framework, so that it does not authenticate the client again.
    """
    known = getattr(request, _AUTHENTICATED, None)
    if known is not None:
        return known.user
    owner = match.func.cls  # type: ignore[attr-defined]
    _share_authentication(owner)
    view = owner(**getattr(match.func, "initkwargs", {}))
    if hasattr(match.func, "actions"):
        view.action_map = match.func.actions
    view.setup(request, *match.args, **match.kwargs)
    made = view.request = view.initialize_request(request, *match.args, **match.kwargs)
    try:
        user = made.user
    except APIException:
        # The view is going to find the same, and responds to it.
        return None
    setattr(request, _AUTHENTICATED, made)
    return user


def _share_authentication(owner: Any) -> None:
    """Let the views of a class use the request that has been made to authenticate its client."""
    original = owner.initialize_request
    if hasattr(original, _SHARES):
        return

    @wraps(original)
    def initialize_request(view: APIView, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        made = original(view, request, *args, **kwargs)
        known = request.__dict__.pop(_AUTHENTICATED, None)
        if known is None:
            return made
        known.parser_context.update(made.parser_context, request=known)
        return known

    setattr(initialize_request, _SHARES, True)
    owner.initialize_request = initialize_request
