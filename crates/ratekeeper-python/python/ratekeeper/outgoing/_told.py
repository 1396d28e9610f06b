"""What the other side says of its limits."""

from __future__ import annotations

import datetime
import email.utils
import math
import re
from collections.abc import Mapping

# Longer than that nobody waits for a server that is wrong, or that means another unit.
PAUSE_MAX = 3_600.0
# Longer fields are not looked into.
_FIELD_LETTERS_MAX = 8_192

_DENIED = (429, 503)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PARAMETER = re.compile(r";\s*([a-z]+)\s*=\s*(\d{1,12})")


def pause_told(status: int, headers: Mapping[str, str]) -> float:
    """Seconds in which nothing more is to be asked; 0 if the other side says nothing of the kind."""
    fields = {str(name).lower(): str(value)[:_FIELD_LETTERS_MAX] for name, value in headers.items()}
    pauses = [_exhausted(fields.get("ratelimit", "")), _legacy(fields)]
    if status in _DENIED:
        pauses.append(_retry_after(fields.get("retry-after", "")))
    return min(max(pauses), PAUSE_MAX)


def _retry_after(text: str) -> float:
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return 0.0
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.timezone.utc)
    return max(0.0, (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds())


def _exhausted(field: str) -> float:
    """How long a policy of `RateLimit: "name";r=0;t=30` has nothing left."""
    pause = 0.0
    for member in _QUOTED.sub("name", field).split(","):
        said = dict(_PARAMETER.findall(member))
        if said.get("r") is not None and int(said["r"]) == 0 and "t" in said:
            pause = max(pause, float(said["t"]))
    return pause


def _legacy(fields: Mapping[str, str]) -> float:
    for prefix in ("ratelimit-", "x-ratelimit-"):
        remaining, reset = fields.get(f"{prefix}remaining", ""), fields.get(f"{prefix}reset", "")
        if remaining.strip() == "0" and reset.strip().isdigit():
            seconds = float(reset.strip()[:12])
            # Some count from 1970. Whoever says an instant further away than a pause may be means that.
            now = datetime.datetime.now(datetime.timezone.utc).timestamp()
            return max(0.0, seconds - math.floor(now)) if seconds > now / 2 else seconds
    return 0.0
