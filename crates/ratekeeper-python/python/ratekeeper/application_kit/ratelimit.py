"""`application_kit.ratelimit`: results, modes and keys."""

from __future__ import annotations

from .._modes import RateLimitMode, get_rate_limit_mode, is_rate_limit_disabled
from .._result import RateLimitResult
from .._web import derive_policy_name
from ..keys import (
    make_org_override_key,
    make_override_key,
    make_path_rate_limit_key,
    make_rate_limit_key,
    parse_org_override_key,
    parse_override_key,
)

RATE_LIMIT_ERROR_MESSAGE = "Rate limit exceeded. Try again later."

__all__ = [
    "RATE_LIMIT_ERROR_MESSAGE",
    "RateLimitMode",
    "RateLimitResult",
    "derive_policy_name",
    "get_rate_limit_mode",
    "is_rate_limit_disabled",
    "make_org_override_key",
    "make_override_key",
    "make_path_rate_limit_key",
    "make_rate_limit_key",
    "parse_org_override_key",
    "parse_override_key",
]
