"""What FastAPI's and Django's limiters have in common."""

from __future__ import annotations

import enum
import functools
import json
import logging
import os
from collections.abc import Callable
from typing import Literal, TypeAlias, TypeVar, get_args

from ._native import Decision, Denial, HttpOptions, Limiter, Quota, Rule, Store, mode_from_environment

Mode: TypeAlias = Literal["on", "monitor", "off"]
OnOutage: TypeAlias = Literal["allow", "deny", "local"]
ModeSource: TypeAlias = Mode | Callable[[], Mode | None] | None
LimiterOf: TypeAlias = Callable[[Store, str, Quota, OnOutage], Limiter]



class RateLimitMode(str, enum.Enum):
    """The modes by name; each is equal to its word, which `get_rate_limit_mode` returns."""

    on = "on"
    monitor = "monitor"
    off = "off"


MODES: tuple[Mode, ...] = get_args(Mode)
ON_OUTAGE: tuple[OnOutage, ...] = get_args(OnOutage)

DETAIL = HttpOptions(body="detail")

# Limits that are made up per request, by `apply_rate_limit`, must not fill the memory.
LIMITERS_MAX = 1_024

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
        said = _said_by(source) if callable(source) else source
        if said is not None:
            return said
    environment = os.environ
    if environment is _ENVIRONMENT and _ENCODED_NAME not in _ENCODED:
        return "on"
    text = environment.get(_NAME)
    return "on" if text is None else _mode_in_environment(text)


def _said_by(source: Callable[[], Mode | None]) -> Mode | None:
    try:
        said = source()
    except Exception as error:
        return _enforced(f"the function for the mode failed with {error!r}")
    if said is None or said in MODES:
        return said
    return _enforced(f"the function for the mode said {said!r}; expected {_either((*MODES, None))}")


@functools.lru_cache(maxsize=16)
def _enforced(problem: str) -> Mode:
    # Cached: a problem is told once, and not with every request.
    _log.error("rate limits are enforced: %s", problem)
    return "on"


@functools.lru_cache(maxsize=16)
def _mode_in_environment(text: str) -> Mode:
    # Cached by what is said there: read quickly.
    try:
        return mode_from_environment() or "on"
    except ValueError as error:
        return _enforced(str(error))


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


def limiters() -> LimiterOf:
    """A function for the limiter with one rule; the same for the same arguments."""

    @functools.lru_cache(maxsize=LIMITERS_MAX)
    def limiter_of(store: Store, policy_name: str, quota: Quota, on_outage: OnOutage) -> Limiter:
        return Limiter(store, Rule(policy_name, quota, on_outage=on_outage))

    return limiter_of


Value = TypeVar("Value")


def check_kind(name: str, value: Value, *kinds: type | None) -> Value:
    """A setting of one of these types, or else TypeError."""
    if isinstance(value, tuple(type(None) if kind is None else kind for kind in kinds)):
        return value
    expected = " or ".join("None" if kind is None else kind.__name__ for kind in kinds)
    raise TypeError(f"{name}: expected {expected}, got {type(value).__name__}")


def check_callable(name: str, value: Value) -> Value:
    """A setting that is a function, or else TypeError."""
    if callable(value):
        return value
    raise TypeError(f"{name}: expected a function, got {type(value).__name__}")


def check_word(name: str, value: object, words: tuple[str | None, ...]) -> None:
    """A setting that is one of a few words, or else ValueError."""
    if value not in words:
        raise ValueError(f"{name}: got {value!r}; expected {_either(words)}")


def _either(words: tuple[str | None, ...]) -> str:
    return " or ".join(map(repr, words))


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
