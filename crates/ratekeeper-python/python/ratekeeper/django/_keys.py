"""Keys by name, as django-ratelimit writes them: `ip`, `user`, `user_or_ip`, `header:x-real-ip`, `get:q`, `post:name`."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable
from typing import Any, TypeAlias

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from .._native import Addresses
from .._web import check_plain_callable

KeyOf: TypeAlias = Callable[[HttpRequest], "str | None"]

_NAMES = '"ip", "user", "user_or_ip", "header:NAME", "get:NAME", "post:NAME", the dotted name of a function, or a function'
_IPV6_PREFIX = 64
# Whose address is none counts with all others of that kind.
_UNKNOWN = "::"


def key_named(key: KeyOf | str) -> KeyOf:
    """The function for a key; ValueError or TypeError if it is none."""
    if not isinstance(key, str):
        try:
            return check_plain_callable("key", key)
        except TypeError as error:
            raise TypeError(f'{error}; such as key=lambda request: request.META["REMOTE_ADDR"]') from None
    if key in _PLAIN:
        return _PLAIN[key]
    kind, _, name = key.partition(":")
    if name and kind in _OF_FIELD:
        return functools.partial(_OF_FIELD[kind], name)
    if "." in key and not name:
        try:
            return key_named(import_string(key))
        except ImportError as error:
            raise ValueError(f"key: {error}; expected {_NAMES}") from None
    raise ValueError(f"key: got {key[:64]!r}; expected {_NAMES}")


@functools.cache
def addresses() -> Addresses:
    """How the address of a client is found: by RATELIMIT_TRUSTED_PROXIES and RATELIMIT_PROXY_HEADER."""
    trusted = getattr(settings, "RATELIMIT_TRUSTED_PROXIES", ())
    header: Any = getattr(settings, "RATELIMIT_PROXY_HEADER", "x-forwarded-for")
    if isinstance(trusted, str):
        raise ImproperlyConfigured(f"RATELIMIT_TRUSTED_PROXIES: got a text; expected several, such as [{trusted!r}]")
    try:
        return Addresses(list(trusted), header=header)
    except ValueError as error:
        said = str(error).replace("trusted[", "RATELIMIT_TRUSTED_PROXIES[").replace("header:", "RATELIMIT_PROXY_HEADER:")
        raise ImproperlyConfigured(said) from error


def address_of(request: HttpRequest) -> str:
    """The address that a request counts under; of IPv6 its network."""
    peer = str(request.META.get("REMOTE_ADDR") or "")
    try:
        ipaddress.ip_address(peer)
    except ValueError:
        # Behind a socket of Unix there is none.
        peer = _UNKNOWN
    found: str = addresses().client(peer, list(request.headers.items()))
    if ":" not in found:
        return found
    prefix = getattr(settings, "RATELIMIT_IPV6_PREFIX", _IPV6_PREFIX)
    return f"{ipaddress.ip_network((found, prefix), strict=False)}"


def _user(request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    # All who are not logged in are one.
    return f"user:{user.pk}" if user is not None and user.is_authenticated else "user:"


def _user_or_address(request: HttpRequest) -> str:
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user:{user.pk}"
    return f"ip:{address_of(request)}"


def _header(name: str, request: HttpRequest) -> str:
    return f"header:{request.headers.get(name, '')}"


def _get(name: str, request: HttpRequest) -> str:
    return f"get:{request.GET.get(name, '')}"


def _post(name: str, request: HttpRequest) -> str:
    return f"post:{request.POST.get(name, '')}"


_PLAIN: dict[str, KeyOf] = {
    "ip": lambda request: f"ip:{address_of(request)}", "user": _user, "user_or_ip": _user_or_address,
}
_OF_FIELD: dict[str, Callable[[str, HttpRequest], str]] = {"header": _header, "get": _get, "post": _post}
