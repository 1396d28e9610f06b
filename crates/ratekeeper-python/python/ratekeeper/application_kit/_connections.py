"""Which Redis a dependency by name is, and the few things that Application Kit reads from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from .._native import Addresses, Store
from .._web import check_word
from ._clients import store_of_client

# A URL, a client of redis-py, or a store.
Source: TypeAlias = Any
ElementKey: TypeAlias = Literal["joined", "colon"]

_VARIABLE = "RATEKEEPER_REDIS_"
_SPELLINGS: tuple[ElementKey, ...] = ("joined", "colon")

_sources: dict[str, Source] = {}
_options: dict[str, Any] = {}
_opened: dict[str, Store] = {}
_element_key: ElementKey = "joined"
# Whoever asks for an address without a connection is behind a proxy: the one that writes the field.
_NEAREST = "127.0.0.1"
_addresses = Addresses([_NEAREST])


def configure(
    *,
    redis: Mapping[str, Source] | None = None,
    options: Mapping[str, Any] | None = None,
    element_key: ElementKey | None = None,
    trusted_proxies: Sequence[str] | None = None,
    proxy_header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for",
) -> None:
    """Says what stands elsewhere in services on Application Kit. What is left out stays as it was.

    `redis`: URLs, clients of redis-py or stores, by the name of the dependency. `options`: those of `Store.redis`, such as
    `deadline`, for stores that are made of URLs and clients. `element_key`: how a `key_suffix` follows its endpoint in keys:
    "joined" as in `/matrix/elements`, which is how the reference has it, or "colon" as in `/matrix:/elements`, which is how the
    article has it. `trusted_proxies`: whose word `extract_user_ip_from_headers` takes, beside the proxy that is nearest;
    `proxy_header` is the field that they write.
    """
    global _element_key, _addresses
    if element_key is not None:
        check_word("element_key", element_key, _SPELLINGS)
        _element_key = element_key
    if trusted_proxies is not None:
        _addresses = Addresses([_NEAREST, *trusted_proxies], header=proxy_header)
    if options is not None:
        _options.clear()
        _options.update(options)
        _opened.clear()
    for name, source in (redis or {}).items():
        _sources[name] = source
        _opened.pop(name, None)


def store_named(name: str = "ratelimit") -> Store:
    """The store of a dependency; RuntimeError if nothing says where it is."""
    store = _opened.get(name)
    if store is None:
        store = _opened[name] = _open(name)
    return store


def is_known(name: str) -> bool:
    """Whether something says where a dependency is."""
    return name in _sources or _variable(name) in os.environ


def store_of(client: Any) -> Store:
    """The store of a client that a call was given."""
    return store_of_client(client) if isinstance(client, Store) else store_of_client(client, **_options)


def suffix_in_keys(key_suffix: str) -> str:
    """A suffix as it stands in keys."""
    return f":{key_suffix}" if key_suffix and _element_key == "colon" else key_suffix


def client_address(headers: Sequence[tuple[str, str]]) -> str | None:
    """The address that the nearest proxy, and those that are trusted, say that a request comes from."""
    found = _addresses.client(_NEAREST, headers)
    return None if found == _NEAREST else found


def _variable(name: str) -> str:
    return _VARIABLE + "".join(letter if letter.isalnum() else "_" for letter in name).upper()


def _open(name: str) -> Store:
    source = _sources.get(name, os.environ.get(_variable(name)))
    if source is None:
        raise RuntimeError(
            f"redis_dependency: nothing says where {name!r} is: set {_variable(name)}=redis://..., call "
            f"ratekeeper.application_kit.configure(redis={{{name!r}: ...}}), or give redis_client="
        )
    if isinstance(source, str):
        return Store.open(source) if source.startswith("memory") else Store.redis(source, **_options)
    return store_of(source)
