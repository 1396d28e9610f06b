"""`application_kit.ratelimit`: results, modes and keys.

Left out is the script, `PROJECT_RATE_LIMITER_LUA`: the engine counts where it counts, and as it counts, by scripts of its own.
"""

from __future__ import annotations

from typing import NoReturn

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


def __getattr__(name: str) -> NoReturn:
    if name == "PROJECT_RATE_LIMITER_LUA":
        # An AttributeError would be told without its words by `from ... import`.
        raise ImportError(
            "PROJECT_RATE_LIMITER_LUA is left out: the engine has scripts of its own; "
            "expected apply_rate_limit, or Limiter.check_project, which count at the same keys"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
