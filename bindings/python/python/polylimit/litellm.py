"""A plug-in of LiteLLM's proxy: exact limits of requests, tokens and money for all of its processes together.

A module next to the proxy's ``config.yaml`` makes the limits, and the file names them:

>>> from polylimit import AsyncLimiter
>>> from polylimit.litellm import RateLimits
>>> limiter = AsyncLimiter(policies={"requests": "600/minute", "tokens": "100000/minute token_bucket"})
>>> limits = RateLimits(limiter, {"requests": "requests", "tokens": "tokens"})

``litellm_settings: {callbacks: limits.limits}`` for a module ``limits.py``.

Before a call the plug-in spends what the call may use at most, under all policies in one step: the tokens of the
prompt, as LiteLLM counts them, and ``max_tokens`` of the request. When LiteLLM reports the usage, also that of a stream
at its end, the plug-in gives back the rest, or charges what the estimate lacked. A call without a report of its usage
has spent what was estimated.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import litellm
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from polylimit import AsyncLimiter, InvalidArgumentError, Request, header_fields, problem
from polylimit._client import has_slots
from polylimit._guard import check_limiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from polylimit import Policy

__all__ = ["Kind", "RateLimits"]

#: What a policy counts. A micro-dollar is a millionth of a dollar.
Kind = Literal["requests", "tokens", "input_tokens", "output_tokens", "micro_dollars"]

#: The most units of one operation.
_MAX_COST = 10**12
#: The names of the bound on the tokens of an answer, in the requests of the interfaces that the proxy has.
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_LOGGER = logging.getLogger("polylimit")


@dataclass(frozen=True)
class _Usage:
    """What a call uses: tokens of its prompt and its answer, and dollars."""

    input_tokens: int
    output_tokens: int
    dollars: float

    def units(self, kind: Kind) -> int:
        """Return the units of a kind, rounded up."""
        if kind == "requests":
            return 1
        if kind == "micro_dollars":
            return min(math.ceil(self.dollars * 1_000_000), _MAX_COST)
        counted = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "tokens": self.input_tokens + self.output_tokens,
        }
        return min(counted[kind], _MAX_COST)


@dataclass
class _Call:
    """A call that was admitted and has not ended."""

    key: str | bytes
    estimate: _Usage
    #: The id of its slots.
    id: str
    began: float = field(default_factory=time.monotonic)
    #: Whether the model has begun to answer, so that a failure gives nothing back.
    is_answered: bool = False
    #: Whether its stream ends with a report of its usage that the client has not requested.
    hides_usage: bool = False


def tenant(user_api_key_dict: Any, _data: dict[str, Any]) -> str:
    """Return the key of a call by default: the team of its API key, else the user, else the API key as it is hashed."""
    for kind, name in (("team", "team_id"), ("user", "user_id"), ("key", "api_key")):
        if value := getattr(user_api_key_dict, name, None):
            return f"{kind}:{value}"
    return "anonymous"


class RateLimits(CustomLogger):  # type: ignore[misc]  # LiteLLM is not typed
    """The limits of a proxy, for its ``callbacks``.

    Parameters
    ----------
    limiter
        The limiter, which every process of the proxy makes for itself.
    policies
        The policies of each call by their names in the limiter, with what they count: ``"requests"``, ``"tokens"``,
        ``"input_tokens"``, ``"output_tokens"`` or ``"micro_dollars"``. A policy of ``"requests"`` may have a quota such
        as ``"20 concurrent"``.
    key
        A function of the caller (LiteLLM's ``UserAPIKeyAuth``) and the request's data that returns the key; the default
        is the caller's team, else the user, else the API key.
    max_tokens
        The tokens that an answer may have where the request gives no bound; 1000 by default.
    ttl
        How long a call may take, in seconds: a slot that no end of a call gives back is free after this time; 600 by
        default.

    Raises
    ------
    InvalidArgumentError
        When the limiter does not know a policy, or a policy counts something else than these.

    """

    def __init__(
        self,
        limiter: AsyncLimiter,
        policies: Mapping[str, Kind],
        *,
        key: Callable[[Any, dict[str, Any]], str | bytes] = tenant,
        max_tokens: int = 1000,
        ttl: float = 600,
    ) -> None:
        super().__init__()
        check_limiter(limiter, (AsyncLimiter,))
        if not policies:
            raise InvalidArgumentError("policies is empty: give the name of each policy with what it counts")
        for name, kind in policies.items():
            if kind not in get_args(Kind):
                known = ", ".join(get_args(Kind))
                raise InvalidArgumentError(f'policy {name} counts "{kind}": allowed are {known}')
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or not 0 <= max_tokens <= _MAX_COST:
            raise InvalidArgumentError(f"max_tokens is {max_tokens!r}: allowed is 0 to {_MAX_COST}")
        self._limiter = limiter
        self._policies = {name: (kind, limiter.policy_for(name)) for name, kind in policies.items()}
        self._with_slots = {name for name in policies if has_slots(limiter, name)}
        self._key = key
        self._max_tokens = max_tokens
        self._ttl = ttl
        # By LiteLLM's id of the call, which a client may choose: two calls may have one.
        self._calls: OrderedDict[str, list[_Call]] = OrderedDict()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Admit a call or refuse it; LiteLLM calls this before the call.

        Raises
        ------
        HTTPException
            With status 429, when a policy denies the call.

        """
        del cache
        key = self._key(user_api_key_dict, data)
        estimate = self._estimate(data, call_type)
        requests = [Request(key, name, cost=estimate.units(kind)) for name, (kind, _) in self._policies.items()]
        reservation = await self._limiter.reserve_together(requests, ttl=self._ttl)
        outcomes = [
            (policy, made) for (_, policy), made in zip(self._policies.values(), reservation.decisions, strict=True)
        ]
        if not reservation.allowed:
            raise _refused(outcomes)
        hides_usage = call_type in ("completion", "acompletion") and _request_usage(data)
        self._remember(str(data.get("litellm_call_id")), _Call(key, estimate, reservation.id, hides_usage=hides_usage))
        return data

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Note that a stream has begun; LiteLLM passes each stream through this."""
        del user_api_key_dict
        calls = tuple(self._calls.get(str(request_data.get("litellm_call_id")), ()))
        hides_usage = any(call.hides_usage for call in calls)
        async for chunk in response:
            for call in calls:
                call.is_answered = True
            if not (hides_usage and _is_usage(chunk)):
                yield chunk

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Settle what a call has used; LiteLLM calls this when it has ended."""
        del response_obj, start_time, end_time
        if call := self._take(str(kwargs.get("litellm_call_id"))):
            await self._settle(call, _reported(kwargs.get("standard_logging_object") or {}) or call.estimate)

    async def async_post_call_failure_hook(
        self, request_data: dict[str, Any], original_exception: Exception, user_api_key_dict: Any, *_: Any, **__: Any
    ) -> None:
        """Give back what a call was to use; LiteLLM calls this when the call has failed for good."""
        del original_exception, user_api_key_dict
        if call := self._take(str(request_data.get("litellm_call_id"))):
            await self._settle(call, call.estimate if call.is_answered else None)

    def _remember(self, number: str, call: _Call) -> None:
        # Some calls end without a word, such as those of clients that have left: these have spent their estimate.
        while self._calls:
            oldest = next(iter(self._calls))
            if call.began - self._calls[oldest][-1].began < self._ttl:
                break
            del self._calls[oldest]
        self._calls.setdefault(number, []).append(call)

    def _take(self, number: str) -> _Call | None:
        calls = self._calls.get(number)
        if not calls:
            return None
        call = calls.pop(0)
        if not calls:
            del self._calls[number]
        return call

    async def _settle(self, call: _Call, used: _Usage | None) -> None:
        """Charge what a call has used in place of its estimate; ``None`` for a call that was not answered."""
        steps: list[Coroutine[Any, Any, object]] = []
        for name, (kind, _) in self._policies.items():
            spent, units = call.estimate.units(kind), 0 if used is None else used.units(kind)
            if name in self._with_slots and used is None:
                steps.append(self._limiter.cancel(call.key, call.id, policy=name))
            elif name in self._with_slots:
                steps.append(self._limiter.commit(call.key, call.id, spent=units, policy=name))
            elif units < spent:
                steps.append(self._limiter.refund(call.key, name, cost=spent - units))
            elif units > spent:
                steps.append(self._limiter.charge(call.key, name, cost=units - spent))
        for made in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(made, Exception):
                _LOGGER.error("the usage of a call is not settled: %s", made)

    def _estimate(self, data: dict[str, Any], call_type: str) -> _Usage:
        """Return the most that a call may use."""
        model = str(data.get("model") or "")
        kinds = {kind for kind, _ in self._policies.values()}
        if kinds == {"requests"}:
            return _Usage(0, 0, 0.0)
        messages, text = data.get("messages"), data.get("prompt") or data.get("input")
        if isinstance(messages, list):
            asked = litellm.token_counter(model=model, messages=messages, tools=data.get("tools"))
        else:
            asked = litellm.token_counter(model=model, text=text if isinstance(text, str) else str(text or ""))
        answered = 0
        if messages is not None or data.get("prompt") is not None or "response" in call_type:
            bounds = [data.get(name) for name in _BOUNDS]
            whole = [bound for bound in bounds if isinstance(bound, int) and not isinstance(bound, bool) and bound >= 0]
            answers = data.get("n")
            times = answers if isinstance(answers, int) and not isinstance(answers, bool) and answers > 1 else 1
            answered = (max(whole) if whole else self._max_tokens) * times
        dollars = _price(model, asked, answered) if "micro_dollars" in kinds else 0.0
        return _Usage(asked, answered, dollars)


def _request_usage(data: dict[str, Any]) -> bool:
    """Have the model report the usage of a stream; return whether the client has not requested that.

    Newer versions of LiteLLM do so themselves.
    """
    options = data.get("stream_options")
    options = options if isinstance(options, dict) else {}
    if data.get("stream") is not True or "include_usage" in options:
        return False
    data["stream_options"] = {**options, "include_usage": True}
    return True


def _is_usage(chunk: Any) -> bool:
    """Return whether a part of a stream reports usage and nothing else."""
    choices = getattr(chunk, "choices", None) or []
    says = any(getattr(choice, "finish_reason", None) or getattr(choice.delta, "content", None) for choice in choices)
    return getattr(chunk, "usage", None) is not None and not says


def _refused(outcomes: list[tuple[Policy, Any]]) -> HTTPException:
    denied = problem(outcomes)
    error = "rate limit" if denied is None else f"rate limit {', '.join(denied.violated)}: {denied.detail}"
    return HTTPException(429, {"error": error}, headers=dict(header_fields(outcomes)))


def _reported(usage: Mapping[str, Any]) -> _Usage | None:
    """Return the usage that LiteLLM has logged; ``None`` where the model has reported none."""
    asked, answered = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
    # Some interfaces report the sum alone.
    asked = max(asked, int(usage.get("total_tokens") or 0) - answered)
    if asked == 0 and answered == 0:
        return None
    return _Usage(asked, answered, float(usage.get("response_cost") or 0.0))


def _price(model: str, asked: int, answered: int) -> float:
    """Return the dollars of tokens: of the dearest deployment behind a name of the proxy."""
    from litellm.proxy import proxy_server

    router = proxy_server.llm_router
    deployments = [] if router is None else router.get_model_list(model_name=model) or []
    prices = []
    for deployment in deployments:
        known = {**(deployment.get("model_info") or {}), **deployment["litellm_params"]}
        if known.get("input_cost_per_token") is not None and known.get("output_cost_per_token") is not None:
            prices.append(asked * known["input_cost_per_token"] + answered * known["output_cost_per_token"])
            continue
        prices.append(_listed_price(str(known["model"]), asked, answered))
    return max(prices) if prices else _listed_price(model, asked, answered)


def _listed_price(model: str, asked: int, answered: int) -> float:
    """Return the dollars of tokens by LiteLLM's list of prices."""
    try:
        return float(sum(litellm.cost_per_token(model=model, prompt_tokens=asked, completion_tokens=answered)))
    except Exception as error:
        message = f"no price of {model} is known: its model_info needs input_cost_per_token and output_cost_per_token"
        raise HTTPException(500, {"error": message}) from error
