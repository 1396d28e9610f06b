"""`application_kit.authenticator.utils`: the address of a user behind proxies."""

from __future__ import annotations

from collections.abc import Mapping

from .._connections import client_address

__all__ = ["extract_user_ip_from_headers"]


def extract_user_ip_from_headers(headers: Mapping[str, str]) -> str | None:
    """The address that the nearest proxy says a request comes from; None if there is no proxy that says one.

    What a client writes into the field itself is never believed: it is read from the right, and what stands left of an
    address that is no trusted proxy (`configure(trusted_proxies=...)`) is not looked at.
    """
    # Starlette's headers may hold a field several times.
    pairs = getattr(headers, "multi_items", None) or headers.items
    return client_address([(str(name), str(value)) for name, value in pairs()])
