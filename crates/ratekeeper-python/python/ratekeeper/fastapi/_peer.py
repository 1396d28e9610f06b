"""Addresses of peers as servers tell them, which may be any text.

uvicorn, where it believes everybody's `X-Forwarded-For`, hands on what stands there; a test client has a name.
"""

from __future__ import annotations

import ipaddress

# Nobody's. All whose address is none count as one: garbage is no way around a limit.
UNKNOWN = "::"


def peer_address(host: object) -> str:
    """The IP address in what is said of a peer, without port, brackets and zone."""
    text = str(host).strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return UNKNOWN
