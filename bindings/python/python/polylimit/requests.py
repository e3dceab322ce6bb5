"""An adapter for requests that stays within a limit of your own and waits as servers demand.

>>> import requests
>>> from polylimit import Limiter
>>> from polylimit.requests import RateLimitAdapter
>>> session = requests.Session()
>>> session.mount("https://", RateLimitAdapter(Limiter(), "10/s token_bucket"))

The rules are those of every language: docs/clients.md.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter
from requests.exceptions import Timeout

from polylimit import Limiter
from polylimit._client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from polylimit import Backoff, Policy, Quota

__all__ = ["RateLimitAdapter", "Throttled"]


class Throttled(Timeout):
    """Raised when a request was not sent, because it would have to wait for too long."""

    #: Seconds after which the request would be sent; ``None`` if the limiter never admits it.
    retry_after: float | None

    def __init__(self, message: str, retry_after: float | None, request: requests.PreparedRequest) -> None:
        super().__init__(message, request=request)
        self.retry_after = retry_after


def host(request: requests.PreparedRequest) -> str:
    """Return the key of a request by default: the host, and the port unless it is the scheme's own."""
    url = urlsplit(request.url or "")
    name = url.hostname or ""
    name = f"[{name}]" if ":" in name else name
    return name if url.port in (None, {"http": 80, "https": 443}.get(url.scheme)) else f"{name}:{url.port}"


def _total(timeout: Any) -> float | None:
    """Return the time that a response may take by the caller's timeout: a number, (connect, read) or urllib3's."""
    total: float | None = timeout[1] if isinstance(timeout, tuple) else getattr(timeout, "read_timeout", timeout)
    return total


class RateLimitAdapter(HTTPAdapter):
    """An adapter for ``requests.Session``.

    Parameters
    ----------
    limiter
        The limiter that every attempt acquires from.
    policy
        Its policy, or quotas; not needed if the limiter has exactly one policy.
    key
        A function of the prepared request that returns its key; the default is its host.
    cost
        The units of each attempt; 1 by default.
    backoff
        How often and how long a request may wait; ``max_wait`` bounds all of its waits.
    options
        The options of ``requests.adapters.HTTPAdapter``.

    Raises
    ------
    InvalidArgumentError
        When the limiter does not know the policy, or the policy has a quota of concurrency.
    Throttled
        By a request that would have to wait for more than ``max_wait`` or the request's ``timeout``.
    PolylimitError
        By a request for which the limiter could not decide.

    """

    def __init__(
        self,
        limiter: Limiter,
        policy: str | Quota | Policy | None = None,
        *,
        key: Callable[[requests.PreparedRequest], str | bytes] = host,
        cost: int = 1,
        backoff: Backoff | None = None,
        **options: Any,
    ) -> None:
        self._client = Client(limiter, policy, kind=Limiter, key=key, cost=cost, backoff=backoff)
        super().__init__(**options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client!r})"

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - as in the base class
        timeout: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> requests.Response:
        """Send a request as soon as its limits allow it."""
        client = self._client
        key = client.key(request)
        replayable = request.body is None or isinstance(request.body, (str, bytes))
        attempts = client.throttle.start(key, request.method or "", replayable, _total(timeout))
        while True:
            step, seconds = attempts.step()
            if step == "wait":
                time.sleep(seconds)
            elif step == "acquire":
                attempts.acquired(client.limiter.acquire(key, client.policy, cost=client.cost, timeout=seconds))
            elif step == "send":
                response = super().send(request, stream, timeout, *args, **kwargs)
                if not attempts.responded(response.status_code, response.headers):
                    return response
                response.close()
            else:
                message, retry_after = attempts.refusal() or ("", None)
                raise Throttled(message, retry_after, request)
