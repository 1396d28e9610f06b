"""Which mode is in force: what a program says, or else RATE_LIMIT_MODE, read with every request."""

from __future__ import annotations

import contextvars
import enum
import functools
import logging
import os
import time
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from ._native import mode_from_environment

Mode: TypeAlias = Literal["on", "monitor", "off"]


class RateLimitMode(str, enum.Enum):
    """The modes by name; each is equal to its word."""

    on = "on"
    monitor = "monitor"
    off = "off"


ModeSource: TypeAlias = Mode | RateLimitMode | Callable[[], Mode | RateLimitMode | None] | None

MODES: tuple[Mode, ...] = get_args(Mode)

# A problem that stays is told again after so many seconds, not with every request.
_TOLD_EVERY = 60.0
# Programs have few functions for the mode, and few ways to fail; more are told more often.
_KINDS_MAX = 64

_log = logging.getLogger("ratekeeper")

# Asking `os.environ` for what is not there raises two exceptions within it, which costs a request
# more than its check; the dictionary behind it can be asked without.
_NAME = "RATE_LIMIT_MODE"
_ENVIRONMENT = os.environ
_ENCODED_NAME = getattr(os.environ, "encodekey", str)(_NAME)
_ENCODED = getattr(os.environ, "_data", {_ENCODED_NAME: ""})

# What the application says whose request it is.
of_request: contextvars.ContextVar[ModeSource] = contextvars.ContextVar("ratekeeper_mode", default=None)


def plain(mode: Mode | RateLimitMode) -> Mode:
    """The word of a mode."""
    return MODES[MODES.index(mode)]


def current_mode(source: ModeSource = None) -> Mode:
    """What `source` (of a plain word) says now, or else RATE_LIMIT_MODE, or else `on`."""
    if source is not None:
        said = said_mode(source)
        if said is not None:
            return said
    environment = os.environ
    if environment is _ENVIRONMENT and _ENCODED_NAME not in _ENCODED:
        return "on"
    text = environment.get(_NAME)
    return "on" if text is None else _mode_in_environment(text)


def said_mode(source: ModeSource) -> Mode | None:
    """What `source` (of a plain word) says now, if it says anything."""
    return _said_by(source) if callable(source) else source  # type: ignore[return-value]


def _said_by(source: Callable[[], Mode | RateLimitMode | None]) -> Mode | None:
    try:
        said = source()
    except Exception as error:
        return _enforced((id(source), type(error)), f"the function for the mode failed with {error!r}")
    if said is None:
        return None
    if said in MODES:
        return plain(said)
    expected = " or ".join(map(repr, (*MODES, None)))
    return _enforced((id(source), type(said)), f"the function for the mode said {said!r}; expected {expected}")


_told: dict[object, float] = {}


def _enforced(kind: object, problem: str) -> Mode:
    # By its kind: the text of a failure may be another each time, as a timeout's is.
    now = time.monotonic()
    if now - _told.get(kind, -_TOLD_EVERY) >= _TOLD_EVERY:
        if len(_told) >= _KINDS_MAX:
            _told.clear()
        _told[kind] = now
        _log.error("rate limits are enforced: %s", problem)
    return "on"


@functools.lru_cache(maxsize=16)
def _mode_in_environment(text: str) -> Mode:
    # Cached by what is said there: read quickly, and told once.
    try:
        return mode_from_environment() or "on"
    except ValueError as error:
        return _enforced(text, str(error))


def get_rate_limit_mode() -> RateLimitMode:
    """The mode in force now: in a request what its application says (`setup(mode=...)`), else RATE_LIMIT_MODE.

    `on` if neither says one.
    """
    return RateLimitMode(current_mode(of_request.get()))


def is_rate_limit_disabled() -> bool:
    """Whether nothing is enforced, for limiters of one's own that know no monitor mode."""
    return current_mode(of_request.get()) != "on"
