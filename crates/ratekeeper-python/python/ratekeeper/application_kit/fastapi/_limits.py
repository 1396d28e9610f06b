"""Limiters and calls with the signatures of Application Kit."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `__call__`.
import dataclasses
from typing import Any, ClassVar

from fastapi import Request, Response
from starlette.requests import HTTPConnection

from ... import fastapi as _ours
from ..._modes import current_mode
from ..._native import Store
from ..._tracing import check_span
from ..._web import Pair, bounded_suffix, derive_policy_name, warn_of_nobody
from ...fastapi._apply import apply, checked_terms
from ...fastapi._endpoint import endpoint_of_route, path_within
from ...fastapi._request import RequestLimits, noted_project
from ...keys import make_path_rate_limit_key
from .._connections import is_known, store_named, store_of, suffix_in_keys

_MODULE = "application_kit.fastapi.ratelimit"


def project_of_request(request: HTTPConnection) -> Pair | None:
    """What an authentication has left in `request.state`: `organization_id` and `project_id`, or something that has both."""
    found = _ours.project_of_state(request)
    if found is not None:
        return found
    for value in (request.scope.get("state") or {}).values():
        organisation, project = getattr(value, "organization_id", None), getattr(value, "project_id", None)
        if organisation is not None and project is not None:
            return _ours.Project(organisation, project)
    return None


# For applications that were not set up.
_SETTINGS = _ours.Settings(identify=project_of_request)


def _limits_of(request: HTTPConnection) -> RequestLimits:
    return RequestLimits.of(request.scope, _SETTINGS)


class _OnRedis(_ours.RateLimiter):
    """Where Application Kit's limiters count."""

    redis_client: Any
    redis_dependency: str

    def _limits_of(self, request: HTTPConnection) -> RequestLimits:
        return _limits_of(request)

    def _store_of(self, limits: RequestLimits) -> Store:
        return self._known_store(limits.settings) or store_named(self.redis_dependency)

    def _known_store(self, settings: _ours.Settings) -> Store | None:
        """Where it counts, if something says so already: `configure` may still be to come."""
        if self.redis_client is not None:
            return store_of(self.redis_client)
        if self.store is None and is_known(self.redis_dependency):
            return store_named(self.redis_dependency)
        return self.store or settings.store

    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        with check_span(f"{_MODULE}.{type(self).__name__}"):
            await super().__call__(request, response)


@dataclasses.dataclass(eq=False)
class RateLimiter(_OnRedis):
    """The base of limiters of one's own: `make_key` says the key. Monitor mode disables it, as in Application Kit."""

    redis_client: Any = dataclasses.field(default=None, kw_only=True, repr=False)
    redis_dependency: str = dataclasses.field(default="ratelimit", kw_only=True)

    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        if current_mode(_limits_of(request).settings.mode) != "monitor":
            await super().__call__(request, response)


class PathRateLimiter(RateLimiter):
    """Limits each path as it was asked for, whoever asks."""

    def make_key(self, request: Request) -> str | None:
        return make_path_rate_limit_key(f"path:{path_within(request.scope)}")


@dataclasses.dataclass(eq=False)
class ProjectRateLimiter(_OnRedis, _ours.ProjectRateLimiter):
    """Limits each project on each endpoint, with overrides of the project and of its organisation."""

    redis_client: Any = dataclasses.field(default=None, kw_only=True, repr=False)
    redis_dependency: str = dataclasses.field(default="ratelimit", kw_only=True)
    refuses_shared: ClassVar[bool] = False

    def counter_of(self, settings: _ours.Settings, around: str, path: str) -> tuple[object, str]:
        store = self._known_store(settings)
        return id(store) if store else self.redis_dependency, f"{path}{self.key_suffix}"

    def _endpoint(self, limits: RequestLimits, request: Request) -> str:
        return f"{endpoint_of_route(request.scope)}{self.key_suffix}"


async def apply_rate_limit(
    request: Request,
    response: Response,
    max_requests: int,
    expiry: int,
    redis_client: Any,
    increment_amount: int = 1,
    key_suffix: str = "",
    policy_name: str | None = None,
) -> None:
    """Limits the project on this endpoint from within a handler. `redis_client`: one of redis-py, or a `Store`."""
    with check_span(f"{_MODULE}.apply_rate_limit"):
        quotas = checked_terms(max_requests, expiry, increment_amount)
        limits = _limits_of(request)
        if limits.mode() == "off":
            return
        endpoint = endpoint_of_route(request.scope)
        if noted_project(limits, request) is None:
            return warn_of_nobody(endpoint, "setup(identify=...)")
        name = derive_policy_name(key_suffix) if policy_name is None else policy_name
        counted = f"{endpoint}{bounded_suffix(suffix_in_keys(key_suffix))}"
        await apply(
            request, response, max_requests, quotas, store_of(redis_client), increment_amount, counted, name
        )


async def apply_element_rate_limit(
    request: Request,
    response: Response,
    max_requests: int,
    expiry: int,
    increment_amount: int,
    redis_client: Any,
    key_suffix: str = "/elements",
    policy_name: str | None = None,
) -> None:
    """The same for what a request consists of: `increment_amount` of them, counted apart from requests."""
    with check_span(f"{_MODULE}.apply_element_rate_limit"):
        await apply_rate_limit(
            request, response, max_requests, expiry, redis_client, increment_amount, key_suffix, policy_name
        )
