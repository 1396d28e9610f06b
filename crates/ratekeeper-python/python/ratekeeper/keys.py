"""The names under which Application Kit keeps counters and overrides.

    ratelimit:{endpoint}:{organisation}:{project}
    ratelimit_override:{endpoint}:{organisation}:{project}
    ratelimit_org_override:{endpoint}:{organisation}

Endpoints may hold colons, so names are read from the right; in organisations and projects
that are no numbers, a colon is written as `%3A`, and `%` as `%25`; what is empty or longer than 128
bytes is hashed, as `%sha256-...`. What the frameworks' limiters return from `make_key` and its siblings has this form.
What is read is a number again if it was one.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

__all__ = [
    "OverrideScope",
    "make_org_override_key",
    "make_override_key",
    "make_path_rate_limit_key",
    "make_rate_limit_key",
    "parse_org_override_key",
    "parse_override_key",
]

_COUNTER = "ratelimit:"
_OVERRIDE = "ratelimit_override:"
_ORG_OVERRIDE = "ratelimit_org_override:"

# The engine takes no longer ones.
_KEY_BYTES_MAX = 1_024
_ID_BYTES_MAX = 128
# Longer numbers stay text; Python reads no numbers of any length.
_DIGITS_MAX = 40


class OverrideScope(NamedTuple):
    """Whose overrides apply; without a project, those of the organisation alone."""

    endpoint: str
    organisation: int | str
    project: int | str | None = None


def make_rate_limit_key(endpoint: str, organization_id: int | str, project_id: int | str) -> str:
    """The counter of a project on an endpoint."""
    return f"{_COUNTER}{endpoint}:{_part(organization_id)}:{_part(project_id)}"


def make_override_key(endpoint: str, organization_id: int | str, project_id: int | str) -> str:
    """The override of a project on an endpoint."""
    return f"{_OVERRIDE}{endpoint}:{_part(organization_id)}:{_part(project_id)}"


def make_org_override_key(endpoint: str, organization_id: int | str) -> str:
    """The override of an organisation on an endpoint."""
    return f"{_ORG_OVERRIDE}{endpoint}:{_part(organization_id)}"


def make_path_rate_limit_key(path: str) -> str:
    """A counter for anything that is no project: a path, an address."""
    return f"{_COUNTER}{path}"


def parse_override_key(key: str) -> OverrideScope:
    """Whose override has this name; ValueError if it is none."""
    endpoint, (organisation, project) = _parts(key, _OVERRIDE, 3)
    return OverrideScope(endpoint, organisation, project)


def parse_org_override_key(key: str) -> OverrideScope:
    """Which organisation's override has this name; ValueError if it is none."""
    endpoint, (organisation,) = _parts(key, _ORG_OVERRIDE, 2)
    return OverrideScope(endpoint, organisation)


def _parts(key: str, prefix: str, count: int) -> tuple[str, list[int | str]]:
    parts = key.removeprefix(prefix).rsplit(":", count - 1)
    if not key.startswith(prefix) or len(parts) != count or not all(parts):
        wanted = ":".join(["{endpoint}", "{organisation}", "{project}"][:count])
        raise ValueError(f"override key: got {key!r}; expected {prefix}{wanted}")
    endpoint, *owner = parts
    return endpoint, [_id(part) for part in owner]


def _id(part: str) -> int | str:
    # Only what is written as numbers are: `007` is somebody else than 7.
    if len(part) <= _DIGITS_MAX and part.isascii() and part.isdecimal() and (part == "0" or part[0] != "0"):
        return int(part)
    return part.replace("%3A", ":").replace("%25", "%")


def _part(name: int | str) -> str:
    text = str(name)
    encoded = text.encode("utf-8", "surrogatepass")
    if 0 < len(encoded) <= _ID_BYTES_MAX and _is_text(text):
        # Nobody is called like two others together.
        return text.replace("%", "%25").replace(":", "%3A")
    return f"%sha256-{hashlib.sha256(encoded).hexdigest()}"


def _is_text(text: str) -> bool:
    """Whether it has no halves of characters."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def counter_subject(key: str, terms: str, owner: OverrideScope | None) -> str:
    """The key of a counter as the engine takes it, which knows what is a counter.

    Limits that differ are counters that differ, so `terms` are part of it; but for the counter that a project has in
    Application Kit, which knows of none.
    """
    if not isinstance(key, str):
        raise TypeError(f"make_key: expected str or None, got {type(key).__name__}")
    if owner is not None and owner.project is not None:
        if key == make_rate_limit_key(owner.endpoint, owner.organisation, owner.project):
            return bounded(key.removeprefix(_COUNTER))
    return bounded(f"{key.removeprefix(_COUNTER)}@{terms}")


def bounded(key: str, bytes_max: int = _KEY_BYTES_MAX) -> str:
    """A key of any text. What is too long, as a path may be, is hashed, and so is what is empty.

    An empty key is one like others: whoever sends an empty field shares a limit with all who do.
    """
    if key.isascii() and 0 < len(key) <= bytes_max:
        return key
    encoded = key.encode("utf-8", "backslashreplace")
    if 0 < len(encoded) <= bytes_max:
        return encoded.decode()
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"
