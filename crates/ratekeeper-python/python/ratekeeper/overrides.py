"""Overrides under the names that Application Kit has for them, on a `Store`.

An organisation's override is each project's own limit, never a bucket they share. The
chain is: project, organisation, what the limiter says. The same calls without
`await`, and with more arguments, are methods of `Store`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ._native import Override, Store

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


@dataclasses.dataclass(frozen=True)
class RateLimitOverride:
    """Another limit for a project or an organisation: what Application Kit keeps of it."""

    max_requests: int
    expiry: int
    """The window in seconds; 0 is that of the limiter itself, if the override was set without one."""

    def __post_init__(self) -> None:
        if self.max_requests < 0 or self.expiry < 0:
            raise ValueError(f"{self}: expected 0 or more")

    def model_dump(self, *, mode: str = "python") -> dict[str, int]:
        """As a dictionary, which is the same in every mode."""
        return dataclasses.asdict(self)

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """As JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.model_dump(), indent=indent, separators=separators)

    @classmethod
    def model_validate(cls, obj: RateLimitOverride | Mapping[str, Any]) -> RateLimitOverride:
        """Of a dictionary, whose numbers may be text as in Redis, or of one that is made already. ValueError if it is neither."""
        if isinstance(obj, RateLimitOverride):
            return obj
        if not isinstance(obj, Mapping):
            raise ValueError(f"override: got {type(obj).__name__}; expected a mapping with max_requests and expiry")
        return cls(_whole(obj, "max_requests"), _whole(obj, "expiry"))

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> RateLimitOverride:
        """Of JSON."""
        return cls.model_validate(json.loads(json_data))

    @classmethod
    def of(cls, override: Override) -> RateLimitOverride:
        """Of one that the store has, which knows more of it."""
        return cls(override.max_requests, override.expiry or 0)


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if isinstance(value, (str, bytes)) and value.strip().isdigit():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: got {value!r}; expected a whole number")
    return value


def _listed(found: list[tuple[str, Override]]) -> list[tuple[str, RateLimitOverride]]:
    return [(endpoint, RateLimitOverride.of(override)) for endpoint, override in found]


async def set_rate_limit_override(
    store: Store,
    organization_id: int,
    project_id: int,
    endpoint_pattern: str,
    max_requests: int,
    expiry: int,
    override_ttl: int | None = None,
) -> None:
    """Gives a project another limit on an endpoint, for `override_ttl` seconds or until it is deleted."""
    await store.aset_override(
        endpoint_pattern, organization_id, project_id, max_requests=max_requests, expiry=expiry, ttl=override_ttl
    )


async def get_rate_limit_override(
    store: Store, organization_id: int, project_id: int, endpoint_pattern: str
) -> RateLimitOverride | None:
    """The override of a project on an endpoint."""
    found = await store.aget_override(endpoint_pattern, organization_id, project_id)
    return None if found is None else RateLimitOverride.of(found)


async def delete_rate_limit_override(
    store: Store, organization_id: int, project_id: int, endpoint_pattern: str
) -> bool:
    """Says whether there was one."""
    return await store.adelete_override(endpoint_pattern, organization_id, project_id)


async def list_rate_limit_overrides(
    store: Store, organization_id: int, project_id: int
) -> list[tuple[str, RateLimitOverride]]:
    """All endpoints on which a project has an override, with it."""
    return _listed(await store.alist_overrides(organization_id, project_id))


async def clear_project_rate_limit_overrides(store: Store, organization_id: int, project_id: int) -> int:
    """Deletes all overrides of a project; says how many."""
    return await store.aclear_overrides(organization_id, project_id)


async def set_org_rate_limit_override(
    store: Store,
    organization_id: int,
    endpoint_pattern: str,
    max_requests: int,
    expiry: int,
    override_ttl: int | None = None,
) -> None:
    """Gives every project of an organisation another limit on an endpoint."""
    await store.aset_override(
        endpoint_pattern, organization_id, max_requests=max_requests, expiry=expiry, ttl=override_ttl
    )


async def get_org_rate_limit_override(
    store: Store, organization_id: int, endpoint_pattern: str
) -> RateLimitOverride | None:
    """The override of an organisation on an endpoint."""
    found = await store.aget_override(endpoint_pattern, organization_id)
    return None if found is None else RateLimitOverride.of(found)


async def delete_org_rate_limit_override(store: Store, organization_id: int, endpoint_pattern: str) -> bool:
    """Says whether there was one."""
    return await store.adelete_override(endpoint_pattern, organization_id)


async def list_org_rate_limit_overrides(store: Store, organization_id: int) -> list[tuple[str, RateLimitOverride]]:
    """All endpoints on which an organisation has an override, with it."""
    return _listed(await store.alist_overrides(organization_id))


async def clear_org_rate_limit_overrides(store: Store, organization_id: int) -> int:
    """Deletes all overrides of an organisation itself; says how many."""
    return await store.aclear_overrides(organization_id)
