"""Limits that are asked for from within handlers, or by a key that the service finds itself."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `__call__`.
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from starlette.requests import HTTPConnection

from .._late import GiveBack, taken
from .._modes import current_mode, said_mode
from .._native import Decision, PolicyLimiter, Quota, Store
from .._rates import Quotas, quotas_said
from .._web import bounded_suffix, check_callable, check_kind, derive_policy_name
from ..keys import bounded, counter_subject, make_rate_limit_key
from ._places import Places, expect
from ._request import RequestLimits, nobody, noted_endpoint, noted_project

KeyParser = Callable[[Request], Awaitable[str | None] | str | None]


class KeyRateLimiter:
    """Limits by the policy of a service, for the key that `key_parser` finds in a request.

    The limits are the entry for that key in the policy, else its general ones; a service
    without a policy is not limited, nor is a request for which the parser says None.
    The parser may be `async`, and read the body.
    """

    def __init__(
        self, service: str, key_parser: KeyParser, *, cost: int = 1, policies: PolicyLimiter | None = None
    ) -> None:
        self.service = check_kind("service", service, str)
        self.key_parser = check_callable("key_parser", key_parser)
        self.cost = _positive("cost", cost)
        self.policies = check_kind("policies", policies, PolicyLimiter, None)
        # A policy may have a limit of concurrency, now or later.
        expect()

    # As in `RateLimiter`: of an application with WebSockets these come here as well.
    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        limits = RequestLimits.of(request.scope)
        # Without a mode, the policies know theirs.
        mode = said_mode(limits.settings.mode)
        if (mode or current_mode()) == "off":
            return
        # Only HTTP comes this far.
        found = self.key_parser(request)  # type: ignore[arg-type]
        key = await found if inspect.isawaitable(found) else found
        if key is not None:
            policies = self.policies or limits.settings.policies
            if policies is None:
                raise RuntimeError(
                    "KeyRateLimiter has no policies: call ratekeeper.fastapi.setup(app, policies=...), "
                    "or give it policies="
                )
            check_kind("key_parser's key", key, str)
            give_back = functools.partial(self._release, policies)
            asked = policies.acheck(self.service, bounded(key), cost=self.cost, mode=mode)
            decision = await taken(asked, give_back)
            if decision.holds:
                await _hold(decision, give_back, request)
            limits.note(decision, mode, response, request)

    def _release(self, policies: PolicyLimiter, decision: Decision) -> Awaitable[None]:
        return policies.service(self.service).arelease(decision)


async def _hold(decision: Decision, give_back: GiveBack, request: HTTPConnection) -> None:
    try:
        Places.of(request.scope).keep(decision, give_back)
    except RuntimeError:
        await give_back(decision)
        raise


async def apply_rate_limit(
    request: Request,
    response: Response,
    max_requests: int | str,
    expiry: int = 1,
    store: Store | None = None,
    increment_amount: int = 1,
    key_suffix: str = "",
    policy_name: str | None = None,
) -> None:
    """Limits the project on this endpoint from within a handler, where the limit or the cost is known only then.

    `max_requests` may be a text with one rate or several, `"5/minute;100/hour"`. `key_suffix` keeps a counter of its own,
    and names the policy if `policy_name` does not.
    Raises `RateLimitExceeded` (a 429), and ValueError if a number is below 1.
    """
    quotas = checked_terms(max_requests, expiry, increment_amount)
    limits = RequestLimits.of(request.scope)
    if limits.mode() == "off":
        return
    if noted_project(limits, request) is None:
        return nobody(limits, request, limits.store(store))
    name = policy_name if policy_name is not None else derive_policy_name(key_suffix)
    endpoint = f"{noted_endpoint(limits, request)}{bounded_suffix(key_suffix)}"
    await apply(request, response, max_requests, quotas, limits.store(store), increment_amount, endpoint, name)


def checked_terms(max_requests: int | str, expiry: int, increment_amount: int) -> Quota | Quotas:
    """The quotas of a limit; ValueError if a number is below 1."""
    quotas = quotas_said(max_requests, expiry, "fixed_window")
    _positive("increment_amount", increment_amount)
    return quotas


async def apply(
    request: Request, response: Response, max_requests: int | str, quotas: Quota | Quotas, store: Store,
    increment_amount: int, endpoint: str, name: str,
) -> None:
    """Limits the project of a request, if it is known, on an endpoint."""
    limits = RequestLimits.of(request.scope)
    mode, project = limits.mode(), noted_project(limits, request)
    if project is None:
        return
    limiter = limits.settings.limiter_of(store, name, quotas, limits.settings.on_outage)
    if isinstance(quotas, Quota):
        asked = limiter.acheck_project(endpoint, *project, cost=increment_amount, mode=mode)
    else:
        # A project on an endpoint has one counter in Application Kit, so several windows have their own.
        subject = counter_subject(make_rate_limit_key(endpoint, *project), str(max_requests), None)
        owner: dict[str, Any] = {"endpoint": endpoint, "organisation": project[0], "project": project[1]}
        asked = limiter.acheck(subject, cost=increment_amount, mode=mode, **owner)
    decision = await asked
    limits.note(decision, mode, response, request)


async def apply_element_rate_limit(
    request: Request,
    response: Response,
    max_requests: int | str,
    expiry: int,
    increment_amount: int,
    store: Store | None = None,
    key_suffix: str = "/elements",
    policy_name: str | None = None,
) -> None:
    """The same for what a request consists of: `increment_amount` of them, counted apart from requests."""
    await apply_rate_limit(
        request, response, max_requests, expiry, store, increment_amount, key_suffix, policy_name
    )


def _positive(name: str, value: int) -> int:
    check_kind(name, value, int)
    if value < 1:
        raise ValueError(f"{name} must be at least 1")
    return value
