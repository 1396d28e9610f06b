"""What FastAPI's and Django's limiters have in common."""

from __future__ import annotations

import functools
import json
import logging
import os
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

# Asking `os.environ` for what is not there raises two exceptions within it, which costs a request
# more than its check; the dictionary behind it can be asked without.
_NAME = "RATE_LIMIT_MODE"
_ENVIRONMENT = os.environ
_ENCODED_NAME = getattr(os.environ, "encodekey", str)(_NAME)
_ENCODED = getattr(os.environ, "_data", {_ENCODED_NAME: ""})


def current_mode(source: ModeSource = None) -> Mode:
    """What `source` says now, or else RATE_LIMIT_MODE, or else `on`."""
    if source is not None:
        said = source() if callable(source) else source
        if said is not None:
            return said
    environment = os.environ
    if environment is _ENVIRONMENT and _ENCODED_NAME not in _ENCODED:
        return "on"
    text = environment.get(_NAME)
    return "on" if text is None else _mode_in_environment(text)


@functools.lru_cache(maxsize=16)
def _mode_in_environment(text: str) -> Mode:
    # Cached by what is said there: read quickly, and a wrong one is told once and not with every request.
    try:
        return mode_from_environment() or "on"
    except ValueError as error:
        _log.error("rate limits are enforced: %s", error)
        return "on"


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
