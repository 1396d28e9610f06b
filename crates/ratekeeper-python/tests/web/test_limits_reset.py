"""`reset()` of the storage for `limits`: it deletes, so it must not meet anybody else."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from conftest import Backend
from limits.storage import storage_from_string
from servers import RedisServer

from ratekeeper import limits_storage


def test_a_password_is_what_it_is(own_server: RedisServer) -> None:
    password = "my-valkey-redis+unix-pw"
    with redis.Redis(port=own_server.port) as client:
        client.config_set("requirepass", password)
    storage: Any = storage_from_string(f"ratekeeper+redis://:{password}@127.0.0.1:{own_server.port}")
    storage.incr("key", 60)
    assert storage.reset() == 1


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("valkey://valkey.internal:6379", "redis"),
        ("redis://valkey.internal:6379", "redis"),
        ("valkeys://valkey.internal:6379", "rediss"),
    ],
)
def test_a_host_is_where_it_says(url: str, scheme: str) -> None:
    client = limits_storage._client(url, b"pem" if scheme == "rediss" else None)
    known = client.connection_pool.connection_kwargs
    assert known["host"] == "valkey.internal"
    assert known.get("ssl_ca_data") == ("pem" if scheme == "rediss" else None)
    assert (client.connection_pool.connection_class is redis.SSLConnection) == (scheme == "rediss")


def test_sockets_are_reached(own_server: RedisServer) -> None:
    path = own_server.folder / "server.sock"
    for scheme in ("redis+unix", "valkey+unix"):
        storage: Any = storage_from_string(f"ratekeeper+{scheme}://{path}")
        storage.incr("key", 60)
        assert storage.reset() == 1


@pytest.mark.parametrize("prefix", ["a?c", "a*", "[ab]bc", "a\\bc", "^abc"])
def test_a_prefix_is_no_pattern(redis_backend: Backend, prefix: str) -> None:
    assert redis_backend.server is not None
    uri = f"ratekeeper+{redis_backend.server.url}"
    storages: list[Any] = [storage_from_string(uri, key_prefix=name) for name in (prefix, "abc")]
    for storage in storages:
        storage.incr("key", 60)
    assert storages[0].reset() == 1
    assert [storage.get("key") for storage in storages] == [0, 1]
