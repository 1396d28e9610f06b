"""Stores on the servers of clients of redis-py.

Only the settings of a client are read. Its connections and its event loop are never touched, so it may belong to another
loop, or be closed.
"""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from .._native import Store

# Clients that are made for every request have the same settings; a program has few different ones.
_STORES_MAX = 64
# Settings that would connect to another place, or as somebody else, and that the engine has not.
_NOT_KNOWN = ("ssl_certfile", "ssl_keyfile", "ssl_ca_path", "credential_provider")

_stores: dict[object, Store] = {}


def store_of_client(client: Any, **options: Any) -> Store:
    """The store on the server of a client of redis-py, sync or async; the same for the same settings.

    `options` are those of `Store.redis`. A `Store` is its own. TypeError if it is neither; ValueError with a setting that
    the engine has not.
    """
    if isinstance(client, Store):
        return client
    url, authority = _server_of(client)
    key = (url, authority, tuple(sorted(options.items())))
    store = _stores.get(key)
    if store is None:
        if len(_stores) >= _STORES_MAX:
            _stores.clear()
        if authority is not None:
            options = {"certificate_authority": authority, **options}
        store = _stores[key] = Store.redis(url, **options)
    return store


def _server_of(client: Any) -> tuple[str, str | None]:
    _refuse_imitation(client)
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        return _cluster(nodes)
    pool = getattr(client, "connection_pool", None)
    known = getattr(pool, "connection_kwargs", None)
    if not isinstance(known, Mapping):
        raise TypeError(f"redis_client: expected a client of redis-py or a Store, got {type(client).__name__}")
    sentinels = getattr(pool, "sentinel_manager", None)
    is_tls = _is_tls(pool, known)
    authority = _authority(known, getattr(pool, "connection_class", None)) if is_tls else None
    if sentinels is not None:
        return _sentinel(pool, sentinels, known, is_tls), authority
    if known.get("path"):
        return _socket(known), None
    scheme = "rediss" if is_tls else "redis"
    host = _host(str(known.get("host", "localhost")), int(known.get("port", 6379)))
    return f"{scheme}://{_login(known)}{host}/{int(known.get('db') or 0)}", authority


def _is_tls(pool: Any, known: Mapping[str, Any]) -> bool:
    kind = getattr(pool, "connection_class", type(None)).__name__
    return "SSL" in kind or known.get("connection_class", type(None)).__name__ == "SSLConnection"


def _socket(known: Mapping[str, Any]) -> str:
    asked = {"user": known.get("username"), "pass": known.get("password"), "db": known.get("db")}
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in asked.items() if value)
    return f"redis+unix://{quote(str(known['path']))}" + (f"?{query}" if query else "")


def _sentinel(pool: Any, manager: Any, known: Mapping[str, Any], is_tls: bool) -> str:
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in manager.sentinels]
    hosts = ",".join(_host(str(one.get("host")), int(one.get("port", 26379))) for one in asked)
    login = {"sentinel_user": asked[0].get("username"), "sentinel_password": asked[0].get("password")}
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in login.items() if value)
    scheme = "rediss+sentinel" if is_tls else "redis+sentinel"
    place = f"{quote(str(pool.service_name), safe='')}/{int(known.get('db') or 0)}"
    return f"{scheme}://{_login(known)}{hosts}/{place}" + (f"?{query}" if query else "")


def _cluster(nodes: Any) -> tuple[str, str | None]:
    known: Mapping[str, Any] = nodes.connection_kwargs
    startup: Iterable[Any] = getattr(nodes, "startup_nodes", {}).values()
    hosts = ",".join(_host(str(node.host), int(node.port)) for node in startup)
    is_tls = bool(known.get("ssl")) or "SSL" in getattr(known.get("connection_class"), "__name__", "")
    scheme = "rediss+cluster" if is_tls else "redis+cluster"
    authority = _authority(known, known.get("connection_class")) if is_tls else None
    return f"{scheme}://{_login(known)}{hosts}", authority


def _host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _login(known: Mapping[str, Any]) -> str:
    for name in _NOT_KNOWN:
        if known.get(name):
            raise ValueError(
                f"redis_client: got one with {name}, which the engine cannot use; expected a Store, "
                "such as Store.redis(url, password_file=...)"
            )
    user, password = known.get("username"), known.get("password")
    if not password:
        return ""
    return f"{quote(str(user or ''), safe='')}:{quote(str(password), safe='')}@"


def _refuse_imitation(client: Any) -> None:
    """A client without a server has settings as well: those of a server on this machine, which would then be asked."""
    kinds = (type(client), getattr(getattr(client, "connection_pool", None), "connection_class", object))
    if any(base.__module__.partition(".")[0] == "fakeredis" for kind in kinds for base in inspect.getmro(kind)):
        raise ValueError(
            "redis_client: got one of fakeredis, which has no server; expected a Store, "
            "such as that of ratekeeper.testing.RateLimits()"
        )


def _checks_hosts(known: Mapping[str, Any], kind: Any) -> bool:
    """Whether a client checks who a certificate is for. Where it is not the rule, as before redis-py 6, nobody has chosen."""
    if known.get("ssl_check_hostname") is not False:
        return True
    parameter = inspect.signature(kind).parameters.get("ssl_check_hostname") if callable(kind) else None
    return parameter is not None and parameter.default is False


def _authority(known: Mapping[str, Any], kind: Any) -> str | None:
    if not _checks_hosts(known, kind):
        raise ValueError("redis_client: got one with ssl_check_hostname=False; expected one that checks who a certificate is for")
    if str(known.get("ssl_cert_reqs", "required")) in ("none", "VerifyMode.CERT_NONE", "0"):
        raise ValueError("redis_client: got one with ssl_cert_reqs='none'; expected one that checks certificates")
    if known.get("ssl_ca_data"):
        return str(known["ssl_ca_data"])
    file = known.get("ssl_ca_certs")
    return pathlib.Path(file).read_text() if file else None
