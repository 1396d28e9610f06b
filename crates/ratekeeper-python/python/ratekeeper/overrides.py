"""Overrides under the names that Application Kit has for them, on a `Store`.

An organisation's override is each project's own limit, never a bucket they share. The
chain is: project, organisation, what the limiter says. The same calls without
`await`, and with more arguments, are methods of `Store`.
"""

from __future__ import annotations

from ._native import Override, Store

__all__ = [
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
) -> Override | None:
    """The override of a project on an endpoint: `.max_requests`, `.expiry`."""
    return await store.aget_override(endpoint_pattern, organization_id, project_id)


async def delete_rate_limit_override(
    store: Store, organization_id: int, project_id: int, endpoint_pattern: str
) -> bool:
    """Says whether there was one."""
    return await store.adelete_override(endpoint_pattern, organization_id, project_id)


async def list_rate_limit_overrides(
    store: Store, organization_id: int, project_id: int
) -> list[tuple[str, Override]]:
    """All endpoints on which a project has an override, with it."""
    return await store.alist_overrides(organization_id, project_id)


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
) -> Override | None:
    """The override of an organisation on an endpoint."""
    return await store.aget_override(endpoint_pattern, organization_id)


async def delete_org_rate_limit_override(store: Store, organization_id: int, endpoint_pattern: str) -> bool:
    """Says whether there was one."""
    return await store.adelete_override(endpoint_pattern, organization_id)


async def list_org_rate_limit_overrides(store: Store, organization_id: int) -> list[tuple[str, Override]]:
    """All endpoints on which an organisation has an override, with it."""
    return await store.alist_overrides(organization_id)


async def clear_org_rate_limit_overrides(store: Store, organization_id: int) -> int:
    """Deletes all overrides of an organisation itself; says how many."""
    return await store.aclear_overrides(organization_id)
