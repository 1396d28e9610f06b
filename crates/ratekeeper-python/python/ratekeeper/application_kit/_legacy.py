"""Legacy fields, made of what a response says already of its last policy."""

from __future__ import annotations

import re

# Longer fields are no policies of ours.
_FIELD_BYTES_MAX = 16_384
_PARAMETER = re.compile(rb";\s*([a-z]+)=(\d{1,18})")


def legacy_of(policy_field: bytes, state_field: bytes) -> list[tuple[bytes, bytes]]:
    """Limit, remaining and reset, as far as the last members of RateLimit-Policy and RateLimit say them."""
    policy, state = _last(policy_field), _last(state_field)
    told = ((b"limit", policy.get(b"q")), (b"remaining", state.get(b"r")), (b"reset", state.get(b"t")))
    return [(name, value) for name, value in told if value is not None]


def _last(field: bytes) -> dict[bytes, bytes]:
    """The parameters of the last member of a list whose members begin with a quoted name."""
    if len(field) > _FIELD_BYTES_MAX:
        return {}
    # A name may hold anything that prints: what is in quotes separates nothing.
    bare = re.sub(rb'"(?:[^"\\]|\\.)*"', b"name", field)
    return dict(_PARAMETER.findall(bare.rpartition(b",")[2]))
