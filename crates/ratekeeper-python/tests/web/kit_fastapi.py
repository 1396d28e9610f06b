"""The examples of Application Kit's documents for FastAPI, as they stand there but for their imports.

Where these have `application_kit.`, and it is about limits, this has `ratekeeper.application_kit.`; authentication is not
ours, so `AuthenticateKey` stands in for theirs.
"""

from typing import Annotated

import redis.asyncio
from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ratekeeper.application_kit.authenticator.utils import extract_user_ip_from_headers
from ratekeeper.application_kit.fastapi.fastapi import get_fastapi_app
from ratekeeper.application_kit.fastapi.ratelimit import (
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    apply_element_rate_limit,
    apply_rate_limit,
    clear_org_rate_limit_overrides,
    clear_project_rate_limit_overrides,
    delete_org_rate_limit_override,
    delete_rate_limit_override,
    get_org_rate_limit_override,
    get_rate_limit_override,
    is_rate_limit_disabled,
    list_org_rate_limit_overrides,
    list_rate_limit_overrides,
    set_org_rate_limit_override,
    set_rate_limit_override,
)
from ratekeeper.application_kit.fastapi.redis import RedisDependency
from ratekeeper.application_kit.ratelimit import make_path_rate_limit_key
from ratekeeper.application_kit.ratelimit_overrides import set_org_rate_limit_override as set_org_override
from ratekeeper.application_kit.ratelimit_overrides import set_rate_limit_override as set_override


class Token:
    """What an authentication knows of whoever asks."""

    def __init__(self, organization_id: int, project_id: int) -> None:
        self.organization_id, self.project_id = organization_id, project_id


class AuthenticateKey:
    """Application Kit's, as far as limits see it."""

    async def __call__(self, request: Request, x_project: Annotated[str | None, Header()] = None) -> None:
        if x_project is not None:
            request.state.token = Token(*map(int, x_project.split(":")))


router = APIRouter()


@router.get(
    "/datasets/{dataset_id}/search",
    dependencies=[
        Depends(AuthenticateKey()),  # Authentication first
        Depends(ProjectRateLimiter(max_requests=100, expiry=60)),  # Then rate limit
    ],
)
async def search_dataset(dataset_id: int) -> dict[str, str]:
    """Search within a dataset."""
    return {"status": "ok"}


# Rate limit by path only (no authentication required)
@router.get("/public/endpoint", dependencies=[Depends(PathRateLimiter(max_requests=100, expiry=60))])
async def public_endpoint() -> dict[str, str]:
    """Public endpoint with path-based rate limiting."""
    return {"status": "ok"}


async def grant_higher_limit(redis: "redis.asyncio.Redis", organization_id: int, project_id: int) -> None:
    await set_rate_limit_override(
        redis,
        organization_id=organization_id,
        project_id=project_id,
        endpoint_pattern="/datasets/{dataset_id}/search",  # FastAPI format
        max_requests=1000,
        expiry=60,
        override_ttl=86400,  # Optional: auto-expire after 24 hours
    )


async def manage_overrides(redis: "redis.asyncio.Redis") -> None:
    # Get a specific override
    override = await get_rate_limit_override(redis, organization_id=1, project_id=2, endpoint_pattern="/api/search")
    if override:
        print(f"Limit: {override.max_requests}, Window: {override.expiry}s")

    # Delete a specific override
    deleted = await delete_rate_limit_override(redis, organization_id=1, project_id=2, endpoint_pattern="/api/search")
    print(f"Deleted: {deleted}")

    # List all overrides for a project
    overrides = await list_rate_limit_overrides(redis, organization_id=1, project_id=2)
    for endpoint, ovr in overrides:
        print(f"{endpoint}: {ovr.max_requests} req/{ovr.expiry}s")

    # Clear all overrides for a project
    count = await clear_project_rate_limit_overrides(redis, organization_id=1, project_id=2)
    print(f"Cleared {count} overrides")


async def grant_org_higher_limit(redis: "redis.asyncio.Redis", organization_id: int) -> None:
    """Set a rate limit override for all projects in an organization."""
    await set_org_rate_limit_override(
        redis,
        organization_id=organization_id,
        endpoint_pattern="/datasets/{dataset_id}/search",  # FastAPI format
        max_requests=500,
        expiry=60,
        override_ttl=86400,  # Optional: auto-expire after 24 hours
    )


async def manage_org_overrides(redis: "redis.asyncio.Redis") -> None:
    # Get a specific org override
    override = await get_org_rate_limit_override(redis, organization_id=1, endpoint_pattern="/api/search")
    if override:
        print(f"Limit: {override.max_requests}, Window: {override.expiry}s")

    # Delete a specific org override
    deleted = await delete_org_rate_limit_override(redis, organization_id=1, endpoint_pattern="/api/search")
    print(f"Deleted: {deleted}")

    # List all overrides for an organization
    overrides = await list_org_rate_limit_overrides(redis, organization_id=1)
    for endpoint, ovr in overrides:
        print(f"{endpoint}: {ovr.max_requests} req/{ovr.expiry}s")

    # Clear all overrides for an organization
    count = await clear_org_rate_limit_overrides(redis, organization_id=1)
    print(f"Cleared {count} overrides")


# Temporary overrides, which that page imports from `ratelimit_overrides`.
async def temporary_project_override(redis: "redis.asyncio.Redis") -> None:
    await set_override(
        redis,
        organization_id=1,
        project_id=2,
        endpoint_pattern="/api/v1/search",
        max_requests=1000,
        expiry=60,
        override_ttl=3600,  # Override expires after 1 hour
    )


async def temporary_org_override(redis: "redis.asyncio.Redis") -> None:
    await set_org_override(
        redis,
        organization_id=1,
        endpoint_pattern="/api/v1/search",
        max_requests=500,
        expiry=60,
        override_ttl=86400,  # Override expires after 24 hours
    )


@router.post("/geocode/batch", dependencies=[Depends(AuthenticateKey())])
async def batch_geocode(
    request: Request,
    response: Response,
    ratelimit_redis: Annotated["redis.asyncio.Redis", Depends(RedisDependency("ratelimit"))],
) -> dict[str, str]:
    addresses = await request.json()

    # Standard rate limit: 100 requests per minute
    await apply_rate_limit(request, response, max_requests=100, expiry=60, redis_client=ratelimit_redis)

    # Element-based rate limit: 1000 addresses per minute (separate counter)
    await apply_element_rate_limit(
        request, response, max_requests=1000, expiry=60, increment_amount=len(addresses), redis_client=ratelimit_redis
    )

    return {"status": "ok"}


class IpRateLimiter(RateLimiter):
    """Rate limit by client IP address instead of project."""

    def make_key(self, request: Request) -> str | None:
        if is_rate_limit_disabled():
            return None
        ip = extract_user_ip_from_headers(request.headers)
        if ip is None:
            return None
        return make_path_rate_limit_key(f"{request.url.path}:{ip}")


@router.get("/public-endpoint", dependencies=[Depends(IpRateLimiter(max_requests=50, expiry=1))])
async def by_address() -> dict[str, str]:
    return {"status": "ok"}


class GeoRateLimiter(ProjectRateLimiter):
    def make_key(self, request: Request) -> str | None:
        region = request.headers.get("X-Region", "default")
        base = super().make_key(request)
        return f"{base}:{region}" if base else None


@router.get("/geo", dependencies=[Depends(AuthenticateKey()), Depends(GeoRateLimiter(max_requests=2, expiry=60))])
async def geo() -> dict[str, str]:
    return {"status": "ok"}


# The article's
@router.post("/webhook", dependencies=[Depends(PathRateLimiter(max_requests=10, expiry=60))])
async def webhook() -> dict[str, str]:
    return {"status": "ok"}


class Matrix(BaseModel):
    origins: list[str]
    destinations: list[str]


@router.post("/api/matrix", dependencies=[Depends(AuthenticateKey())])
async def matrix(
    request: Request,
    response: Response,
    body: Matrix,
    redis: Annotated["redis.asyncio.Redis", Depends(RedisDependency("ratelimit"))],
) -> dict[str, str]:
    # Request: 10 origins x 5 destinations = 50 elements
    rows, cols = len(body.origins), len(body.destinations)
    await apply_element_rate_limit(
        request, response,
        max_requests=1000,  # 1000 elements per minute
        expiry=60,
        increment_amount=rows * cols,  # This request costs 50
        redis_client=redis,
    )
    return {"status": "ok"}


app = get_fastapi_app("myapi")
app.include_router(router)  # Rate limit docs auto-injected here
