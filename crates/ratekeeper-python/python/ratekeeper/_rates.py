"""Rates as text, as `limits`, slowapi and django-ratelimit write them: `5/minute;100/hour`, `10 per 2 hours`, `3/5m`."""

from __future__ import annotations

import functools
import re
from typing import TypeAlias

from ._native import Quota

# Rates in one text; the engine takes a few more quotas in one check.
RATES_MAX = 8

# Months and years are those of `limits`: 30 days, and twelve times that.
_UNITS = {
    "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hr": 3_600, "hour": 3_600,
    "d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800, "month": 2_592_000, "year": 31_104_000,
}
_RATE = re.compile(r"\s*(\d{1,12})\s*(?:/|per\b)\s*(\d{0,9})\s*([a-z]+?)s?\s*", re.IGNORECASE)
_EXPECTED = 'expected rates such as "5/minute" or "5/minute;100/hour"'

Quotas: TypeAlias = tuple[tuple[str, Quota], ...]


def rates_of(text: str) -> tuple[tuple[int, int], ...]:
    """How much in how many seconds, of each rate in a text; ValueError if it is none."""
    found = []
    for part in re.split(r"[;,|]", text):
        match = _RATE.fullmatch(part)
        # `s` alone is a unit, and no plural.
        unit = match and (match[3].lower() if match[3] else "s")
        if match is None or unit not in _UNITS:
            raise ValueError(f"rate: got {part.strip()[:64]!r}; {_EXPECTED}")
        seconds = int(match[2] or 1) * _UNITS[unit]
        if seconds < 1:
            raise ValueError(f"rate: got {part.strip()!r}; expected a window of at least 1 second")
        found.append((int(match[1]), seconds))
    if len(found) > RATES_MAX:
        raise ValueError(f"rate: got {len(found)} rates; expected at most {RATES_MAX}")
    if len({seconds for _, seconds in found}) < len(found):
        raise ValueError(f"rate: got {text[:64]!r}, two rates of one window; expected each window once")
    return tuple(found)


@functools.lru_cache(maxsize=1_024)
def quotas_of(text: str, algorithm: str = "fixed_window") -> Quotas:
    """The quotas of a text, each under a name of its own: `60s`, `3600s`."""
    rates = rates_of(text)
    if any(limit < 1 for limit, _ in rates):
        raise ValueError("max_requests must be at least 1")
    return tuple((f"{seconds}s", Quota(f"{limit}/{seconds}s {algorithm}")) for limit, seconds in rates)


def quota_said(limit: int, seconds: int, algorithm: str = "fixed_window") -> Quota:
    """So many in so many seconds; ValueError if either is below 1."""
    fixed = Quota.fixed_window(limit, seconds)
    return fixed if algorithm == "fixed_window" else Quota(f"{limit}/{seconds}s {algorithm}")


def quotas_said(rate: int | str, expiry: int, algorithm: str) -> Quota | Quotas:
    """The quota of a rate, or each with its name if there are several."""
    if not isinstance(rate, str):
        return quota_said(rate, expiry, algorithm)
    if expiry != 1:
        raise ValueError(f"expiry: got {expiry} beside {rate!r}, which has its window; expected none")
    found = quotas_of(rate, algorithm)
    return found[0][1] if len(found) == 1 else found
