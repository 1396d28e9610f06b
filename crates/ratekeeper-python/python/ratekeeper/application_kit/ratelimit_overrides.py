"""`application_kit.ratelimit_overrides`: the same calls, with a client of redis-py or a `Store`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, NonNegativeInt

from .. import overrides as _overrides
from ._connections import store_of

__all__ = [
    "RateLimitOverride",
    "clear_org_rate_limit_overrides",
    "clear_project_rate_limit_overrides",
    "delete_org_rate_limit_override",
    "delete_rate_limit_override",
    "get_org_rate_limit_override",
    "get_rate_limit_override",
    "list_org_rate_limit_overrides",
    "list_rate_limit_overrides",
    "set_org_rate_limit_override",
    "set_rate_limit_override",
]

P = ParamSpec("P")
T = TypeVar("T")


class RateLimitOverride(BaseModel):
    """Another limit for a project or an organisation: `max_requests` in `expiry` seconds. With an expiry of 0, the window is that of
    the limiter itself.
    """

    max_requests: NonNegativeInt
    expiry: NonNegativeInt


def _model(found: _overrides.RateLimitOverride) -> RateLimitOverride:
    return RateLimitOverride(max_requests=found.max_requests, expiry=found.expiry)


# The article writes these arguments in other words than the reference.
_SPELLINGS = {"org_id": "organization_id", "endpoint": "endpoint_pattern"}


def _either_spelling(call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """A call that takes its arguments by the names of the reference and by those of the article."""

    @functools.wraps(call)
    async def spelt(*arguments: P.args, **named: P.kwargs) -> T:
        renamed = {_SPELLINGS.get(name, name): value for name, value in named.items()}
        # Its types have other names for some.
        called: Callable[..., Awaitable[T]] = call
        return await called(*arguments, **renamed)

    return spelt


@_either_spelling
async def set_rate_limit_override(
    redis: Any,
    organization_id: int,
    project_id: int,
    endpoint_pattern: str,
    max_requests: int,
    expiry: int,
    override_ttl: int | None = None,
) -> None:
    """Gives a project another limit on an endpoint, for `override_ttl` seconds or until it is deleted."""
    await _overrides.set_rate_limit_override(
        store_of(redis), organization_id, project_id, endpoint_pattern, max_requests, expiry, override_ttl
    )


@_either_spelling
async def get_rate_limit_override(
    redis: Any, organization_id: int, project_id: int, endpoint_pattern: str
) -> RateLimitOverride | None:
    """The override of a project on an endpoint."""
    found = await _overrides.get_rate_limit_override(store_of(redis), organization_id, project_id, endpoint_pattern)
    return None if found is None else _model(found)


@_either_spelling
async def delete_rate_limit_override(
    redis: Any, organization_id: int, project_id: int, endpoint_pattern: str
) -> bool:
    """Says whether there was one."""
    return await _overrides.delete_rate_limit_override(store_of(redis), organization_id, project_id, endpoint_pattern)


@_either_spelling
async def list_rate_limit_overrides(
    redis: Any, organization_id: int, project_id: int
) -> list[tuple[str, RateLimitOverride]]:
    """All endpoints on which a project has an override, with it."""
    listed = await _overrides.list_rate_limit_overrides(store_of(redis), organization_id, project_id)
    return [(endpoint, _model(found)) for endpoint, found in listed]


@_either_spelling
async def clear_project_rate_limit_overrides(redis: Any, organization_id: int, project_id: int) -> int:
    """Deletes all overrides of a project; says how many."""
    return await _overrides.clear_project_rate_limit_overrides(store_of(redis), organization_id, project_id)


@_either_spelling
async def set_org_rate_limit_override(
    redis: Any,
    organization_id: int,
    endpoint_pattern: str,
    max_requests: int,
    expiry: int,
    override_ttl: int | None = None,
) -> None:
    """Gives every project of an organisation another limit on an endpoint."""
    await _overrides.set_org_rate_limit_override(
        store_of(redis), organization_id, endpoint_pattern, max_requests, expiry, override_ttl
    )


@_either_spelling
async def get_org_rate_limit_override(
    redis: Any, organization_id: int, endpoint_pattern: str
) -> RateLimitOverride | None:
    """The override of an organisation on an endpoint."""
    found = await _overrides.get_org_rate_limit_override(store_of(redis), organization_id, endpoint_pattern)
    return None if found is None else _model(found)


@_either_spelling
async def delete_org_rate_limit_override(redis: Any, organization_id: int, endpoint_pattern: str) -> bool:
    """Says whether there was one."""
    return await _overrides.delete_org_rate_limit_override(store_of(redis), organization_id, endpoint_pattern)


@_either_spelling
async def list_org_rate_limit_overrides(redis: Any, organization_id: int) -> list[tuple[str, RateLimitOverride]]:
    """All endpoints on which an organisation has an override, with it."""
    listed = await _overrides.list_org_rate_limit_overrides(store_of(redis), organization_id)
    return [(endpoint, _model(found)) for endpoint, found in listed]


@_either_spelling
async def clear_org_rate_limit_overrides(redis: Any, organization_id: int) -> int:
    """Deletes all overrides of an organisation itself; says how many."""
    return await _overrides.clear_org_rate_limit_overrides(store_of(redis), organization_id)
