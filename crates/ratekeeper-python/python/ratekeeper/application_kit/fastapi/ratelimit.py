"""`application_kit.fastapi.ratelimit`.

The calls about overrides are those of `application_kit.ratelimit_overrides` themselves: they do not warn of being imported here.
"""

from ...fastapi import RateLimitExceeded
from ..ratelimit import (
    RATE_LIMIT_ERROR_MESSAGE,
    RateLimitMode,
    RateLimitResult,
    derive_policy_name,
    get_rate_limit_mode,
    is_rate_limit_disabled,
    make_org_override_key,
    make_override_key,
    make_path_rate_limit_key,
    make_rate_limit_key,
)
from ..ratelimit_overrides import (
    RateLimitOverride,
    clear_org_rate_limit_overrides,
    clear_project_rate_limit_overrides,
    delete_org_rate_limit_override,
    delete_rate_limit_override,
    get_org_rate_limit_override,
    get_rate_limit_override,
    list_org_rate_limit_overrides,
    list_rate_limit_overrides,
    set_org_rate_limit_override,
    set_rate_limit_override,
)
from ._legacy import LegacyRateLimitHeaderMiddleware
from ._limits import PathRateLimiter, ProjectRateLimiter, RateLimiter, apply_element_rate_limit, apply_rate_limit

__all__ = [
    "RATE_LIMIT_ERROR_MESSAGE",
    "LegacyRateLimitHeaderMiddleware",
    "PathRateLimiter",
    "ProjectRateLimiter",
    "RateLimitExceeded",
    "RateLimitMode",
    "RateLimitOverride",
    "RateLimitResult",
    "RateLimiter",
    "apply_element_rate_limit",
    "apply_rate_limit",
    "clear_org_rate_limit_overrides",
    "clear_project_rate_limit_overrides",
    "delete_org_rate_limit_override",
    "delete_rate_limit_override",
    "derive_policy_name",
    "get_org_rate_limit_override",
    "get_rate_limit_mode",
    "get_rate_limit_override",
    "is_rate_limit_disabled",
    "list_org_rate_limit_overrides",
    "list_rate_limit_overrides",
    "make_org_override_key",
    "make_override_key",
    "make_path_rate_limit_key",
    "make_rate_limit_key",
    "set_org_rate_limit_override",
    "set_rate_limit_override",
]
