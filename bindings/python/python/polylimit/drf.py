"""Limits for Django REST framework: throttle classes, which run after a view has authenticated its client.

Import them in place of those of the framework. The rates are those of its settings, and may be any quotas or names of
policies; the limiter is that of the setting ``POLYLIMIT``::

    POLYLIMIT = {"limiter": Limiter("redis://localhost")}
    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["polylimit.drf.AnonRateThrottle", "polylimit.drf.UserRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "100/day", "user": "1000/day; 20/second token_bucket"},
    }

The limits of :mod:`polylimit.django` work in the views of the framework as in all others.
"""
# ruff: noqa: E402 - an older version is refused before anything is imported that it does not have

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from polylimit import Limiter, keys
from polylimit._core import RequestLimits
from polylimit._decide import decide, drive
from polylimit._guard import Denial, Guard
from polylimit._versions import require

require("djangorestframework", "3.15", "drf")

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from rest_framework.exceptions import APIException
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from polylimit import django as of_django

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView

__all__ = ["AnonRateThrottle", "RateThrottle", "ScopedRateThrottle", "UserRateThrottle"]

#: The attribute of the view of a request that a throttle has denied.
_DENIED = "_polylimit_denied"

#: The options of other limits that are about the response to a denial.
_OF_RESPONSES = ("on_denied", "status", "message", "cors_origins")

_TOO_MANY_REQUESTS = 429


class RateThrottle(BaseThrottle):
    """A throttle that decides by a policy or by quotas.

    Subclasses set the attributes, or leave them to the settings. A request that a throttle denies gets the response of
    the framework's exception ``Throttled``, whose ``wait`` is the time after which the limit admits it. An outage under
    the policy ``deny`` is answered by 503, and a missing key under ``refuse`` by 400.
    """

    #: The name of the rate in the setting ``DEFAULT_THROTTLE_RATES``, and of the budget of quotas without a name.
    scope: str | None = None
    #: Quotas, or the name of a policy; by default the rate of the scope. With neither a rate nor a scope, the limiter
    #: decides by its configuration, or by its only policy.
    rate: str | None = None
    #: The limiter; by default that of the setting ``POLYLIMIT``.
    limiter: Limiter | None = None
    #: Other options, see :class:`Options`, but for those about the response to a denial. Functions of
    #: the request get that of the framework.
    options: ClassVar[dict[str, Any]] = {}

    _guards: ClassVar[dict[Any, Guard]] = {}

    def __init__(self) -> None:
        self._wait: float | None = None

    def get_rate(self) -> str | None:
        """Return the quotas or the policy of a request; ``None`` admits it."""
        if self.rate is not None or self.scope is None:
            return self.rate
        rates = api_settings.DEFAULT_THROTTLE_RATES
        if self.scope not in rates:
            raise ImproperlyConfigured(f'DEFAULT_THROTTLE_RATES has no rate of the scope "{self.scope}"')
        return cast("str | None", rates[self.scope])

    def is_limited(self, request: Request) -> bool:  # noqa: ARG002 - subclasses look at it
        """Whether a request is limited."""
        return True

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Decide about a request."""
        rate = self.get_rate()
        is_limited = rate is not None or self.scope is None
        # The framework asks all throttles, also after one has denied: a denied request spends nothing under any.
        if not is_limited or hasattr(view, _DENIED) or not self.is_limited(request):
            return True
        info = of_django.RequestInfo(request, is_async=False)
        limits = of_django.request_limits(request)
        if limits is None:
            limits = RequestLimits()
            of_django.finish_in(view, of_django.django_request(request), limits)
        denied = drive(decide(self._guard(rate), info, limits), of_django.wait)
        if denied is None:
            return True
        denial = denied[0]
        setattr(view, _DENIED, True)
        if denial.problem.status != _TOO_MANY_REQUESTS:
            error = APIException(denial.problem.detail)
            error.status_code = denial.problem.status
            raise error
        self._wait = _wait_of(denial)
        return False

    def wait(self) -> float | None:
        """Return the seconds after which the denied request would be admitted; ``None`` if it never would be."""
        return self._wait

    def _guard(self, rate: str | None) -> Guard:
        limiter = self.limiter or _limiter_of_settings()
        name = (type(self), limiter, self.scope, rate)
        guard = self._guards.get(name)
        if guard is None:
            # Without a rate, the limiter's document or its only policy decides.
            defaults = {} if rate is None else {"key": keys.user(), "scope": self.scope}
            options = {**defaults, **self.options}
            for option in _OF_RESPONSES:
                if option in options:
                    raise ImproperlyConfigured(
                        f"{type(self).__name__} has the option {option}: the response to a denial is that of the "
                        "exception handler of the REST framework"
                    )
            guard = self._guards[name] = Guard(limiter, rate, limiter_types=(Limiter,), is_attached=True, **options)
        return guard


def _wait_of(denial: Denial) -> float | None:
    waits = [decision.retry_after for _, decision in denial.outcomes if not decision.allowed]
    found: list[float] = [wait for wait in waits if wait is not None]
    return max(found) if found and len(found) == len(waits) else None


def _limiter_of_settings() -> Limiter:
    given = getattr(settings, "POLYLIMIT", None)
    limiter = given.get("limiter") if isinstance(given, dict) else None
    limiter = import_string(limiter) if isinstance(limiter, str) else limiter
    if not isinstance(limiter, Limiter):
        raise ImproperlyConfigured("a throttle of polylimit needs a limiter: its own, or that of the setting POLYLIMIT")
    return limiter


class AnonRateThrottle(RateThrottle):
    """Limits clients without a user, by their addresses."""

    scope = "anon"
    options: ClassVar[dict[str, Any]] = {"key": keys.client_address()}

    def is_limited(self, request: Request) -> bool:
        """Whether a request is limited."""
        return not (request.user and request.user.is_authenticated)


class UserRateThrottle(RateThrottle):
    """Limits users, and clients without a user by their addresses."""

    scope = "user"


class ScopedRateThrottle(RateThrottle):
    """Limits the views that have a ``throttle_scope``, each user in the budget of that scope."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Decide about a request."""
        self.scope = getattr(view, "throttle_scope", None)
        return self.scope is None or super().allow_request(request, view)
