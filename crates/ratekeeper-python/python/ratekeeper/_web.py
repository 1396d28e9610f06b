"""What FastAPI's and Django's limiters have in common."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from ._native import Decision, Denial, HttpOptions, Limiter, Quota, Rule, Store, mode_from_environment

Mode: TypeAlias = Literal["on", "monitor", "off"]
OnOutage: TypeAlias = Literal["allow", "deny", "local"]
ModeSource: TypeAlias = Mode | Callable[[], Mode | None] | None

DETAIL = HttpOptions(body="detail")

# Limits that are made up per request, by `apply_rate_limit`, must not fill the memory.
_LIMITERS_MAX = 1_024

_log = logging.getLogger("ratekeeper")


def current_mode(source: ModeSource = None) -> Mode:
    """What `source` says now, or else RATE_LIMIT_MODE, or else `on`."""
    try:
        said = source() if callable(source) else source
        return said or mode_from_environment() or "on"
    except ValueError as error:
        _warn_of_mode(str(error))
        return "on"


@functools.lru_cache(maxsize=16)
def _warn_of_mode(problem: str) -> None:
    # Cached, so that a wrong mode is told once and not with every request.
    _log.error("rate limits are enforced: %s", problem)


def get_rate_limit_mode() -> Mode:
    """The mode in RATE_LIMIT_MODE, read anew with every call; `on` if it says none."""
    return current_mode()


def is_rate_limit_disabled() -> bool:
    """Whether nothing is enforced, for limiters of one's own that know no monitor mode."""
    return current_mode() != "on"


def quota_of(max_requests: int, expiry: int, algorithm: str = "fixed_window") -> Quota:
    """So many requests in so many seconds; ValueError if either is below 1."""
    fixed = Quota.fixed_window(max_requests, expiry)
    return fixed if algorithm == "fixed_window" else Quota(f"{max_requests}/{expiry}s {algorithm}")


@functools.lru_cache(maxsize=_LIMITERS_MAX)
def limiter_of(store: Store, policy_name: str, quota: Quota, on_outage: OnOutage) -> Limiter:
    """The limiter with one rule; the same for the same arguments."""
    return Limiter(store, Rule(policy_name, quota, on_outage=on_outage))


def derive_policy_name(key_suffix: str) -> str:
    """The name of a policy that has only a suffix: "" is "requests", "/elements" is "elements"."""
    return key_suffix.strip("/").replace("/", "-") or "requests"


def denial_of(decision: Decision, options: HttpOptions) -> Denial:
    """What is answered to a denied request."""
    denial = decision.denial(options)
    assert denial is not None, "only asked after a denial"
    return denial


def detail_of(decision: Decision) -> str:
    """The sentence for clients: the limit is exceeded, or could not be checked."""
    detail: str = json.loads(denial_of(decision, DETAIL).body)["detail"]
    return detail
