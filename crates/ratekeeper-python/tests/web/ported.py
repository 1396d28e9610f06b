"""A program as users of Application Kit write it: `scripts/python_tests.py` checks its types strictly."""

from __future__ import annotations

from fastapi import Depends, FastAPI, Request, Response

from ratekeeper import Decision, Limiter, Rule, Store
from ratekeeper.fastapi import (
    KeyRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    RateLimitExceeded,
    RateLimitMode,
    RateLimitOverride,
    apply_rate_limit,
    get_rate_limit_mode,
    get_rate_limit_override,
    is_rate_limit_disabled,
    list_rate_limit_overrides,
    make_path_rate_limit_key,
    set_rate_limit_override,
    setup,
)


class AddressLimiter(RateLimiter):
    """A limiter of one's own, as Application Kit's documents have it."""

    def make_key(self, request: Request) -> str | None:
        mode: RateLimitMode = get_rate_limit_mode()
        word: str = mode.value
        if is_rate_limit_disabled() or mode is RateLimitMode.off or word == "off":
            return None
        return make_path_rate_limit_key(f"{request.url.path}:{request.headers.get('x-forwarded-for', 'unknown')}")


def identify(request: Request) -> tuple[int, int] | None:
    """Whose request it is."""
    return (1, 2) if request.method == "GET" else None


def claims(request: Request) -> dict[str, str]:
    """What policies see."""
    return {"plan": request.headers.get("x-plan", "free")}


def mode() -> RateLimitMode:
    """What is in force."""
    return RateLimitMode.monitor


async def key_of(request: Request) -> str | None:
    """Of the request, for a policy."""
    return request.headers.get("x-tenant")


app = FastAPI()
setup(app, store=Store.memory(), identify=identify, claims=claims, mode=mode)
setup(FastAPI(), store=Store.memory(), mode=RateLimitMode.monitor)


@app.exception_handler(RateLimitExceeded)
async def exceeded(request: Request, error: RateLimitExceeded) -> Response:
    """An answer of one's own."""
    return Response(str(error.result.request_count), error.status_code, error.result.to_headers())


@app.get("/search", dependencies=[Depends(ProjectRateLimiter(max_requests=100, expiry=60)), Depends(AddressLimiter(5))])
@app.get("/keyed", dependencies=[Depends(KeyRateLimiter("service", key_of))])
async def search(request: Request, response: Response) -> None:
    """A handler with a limit of its own."""
    await apply_rate_limit(request, response, max_requests=5, expiry=60)


async def overrides(store: Store) -> list[tuple[str, int]]:
    """What an administration does."""
    await set_rate_limit_override(
        store, organization_id=1, project_id=2, endpoint_pattern="/x", max_requests=1, expiry=1
    )
    found: RateLimitOverride | None = await get_rate_limit_override(store, 1, 2, "/x")
    seconds: int = found.expiry if found else RateLimitOverride(max_requests=5, expiry=60).expiry
    listed = await list_rate_limit_overrides(store, organization_id=1, project_id=2)
    return [(endpoint, override.max_requests + seconds) for endpoint, override in listed]


tiers: dict[str, int] = {"rps": 2}
limiter = Limiter(Store.memory(), [Rule("a", tiers), Rule("b", {"rpm": "5/m"}, key=lambda user: str(user))])
decision: Decision = limiter.check("ann")
fields: dict[str, str] = dict(decision.headers())
