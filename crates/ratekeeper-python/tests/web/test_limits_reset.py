"""`reset()` of the storage for `limits`: it deletes, so it must not meet anybody else."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
import redis
from conftest import Backend
from limits.errors import ConfigurationError
from limits.storage import storage_from_string
from servers import RedisServer

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)
from ratekeeper import _limits_reset


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
    client = _limits_reset.client_of(url, b"pem" if scheme == "rediss" else None)
    known = client.connection_pool.connection_kwargs
    assert known["host"] == "valkey.internal"
    assert known.get("ssl_ca_data") == ("pem" if scheme == "rediss" else None)
    assert (client.connection_pool.connection_class is redis.SSLConnection) == (scheme == "rediss")


def test_sentinels_are_asked_for_the_server() -> None:
    url = "rediss+sentinel://ann:one@a.internal:1,b.internal/counters/2?sentinel_user=ben&sentinel_password=two"
    pool = _limits_reset.client_of(url, b"pem").connection_pool
    assert pool.service_name == "counters"
    assert (pool.connection_kwargs["username"], pool.connection_kwargs["password"]) == ("ann", "one")
    assert (pool.connection_kwargs["db"], pool.connection_kwargs["ssl_ca_data"]) == (2, "pem")
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels]
    assert [(sentinel["host"], sentinel["port"]) for sentinel in asked] == [("a.internal", 1), ("b.internal", 26379)]
    assert all((sentinel["username"], sentinel["password"]) == ("ben", "two") for sentinel in asked)
    assert all(sentinel["ssl_ca_data"] == "pem" for sentinel in asked)


def test_sockets_are_reached(own_server: RedisServer) -> None:
    path = own_server.folder / "server.sock"
    for scheme in ("redis+unix", "valkey+unix"):
        storage: Any = storage_from_string(f"ratekeeper+{scheme}://{path}")
        storage.incr("key", 60)
        assert storage.reset() == 1


def test_urls_of_sockets_mean_the_same_to_every_call(own_server: RedisServer) -> None:
    path, password = own_server.folder / "server.sock", "s3cret word"
    with redis.Redis(port=own_server.port) as client:
        client.config_set("requirepass", password)
    for query in (f"pass={password.replace(' ', '%20')}", f"user=default&pass={password.replace(' ', '+')}&db=3"):
        storage: Any = storage_from_string(f"ratekeeper+redis+unix://{path}?{query}")
        storage.incr("key", 60)
        assert storage.reset() == 1, query
        assert storage.get("key") == 0, query


def test_a_protocol_is_no_argument_of_another_client(redis_backend: Backend) -> None:
    assert redis_backend.server is not None
    storage: Any = storage_from_string(f"ratekeeper+{redis_backend.server.url}/2?protocol=resp3")
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


def test_a_password_before_a_path_is_one(own_server: RedisServer) -> None:
    path = own_server.folder / "server.sock"
    with redis.Redis(port=own_server.port) as client:
        client.config_set("requirepass", "s3cret")
    for login in (":s3cret", "default:s3cret"):
        storage: Any = storage_from_string(f"ratekeeper+redis+unix://{login}@{path}?db=2")
        assert storage.incr("key", 60) == 1
        assert storage.reset() == 1


@pytest.mark.parametrize("uri", ["ratekeeper+memory://", "async+ratekeeper+memory://"])
def test_a_memory_says_how_many_it_forgot(uri: str) -> None:
    storage: Any = storage_from_string(uri)
    is_async = uri.startswith("async")

    def call(made: Any) -> Any:
        async def awaited() -> Any:
            return await made

        return asyncio.run(awaited()) if is_async else made

    for number in range(3):
        call(storage.incr(f"key-{number}", 60))
    call(storage.acquire_entry("key-0", 5, 60))
    call(storage.acquire_sliding_window_entry("key-0", 5, 60))
    assert not call(storage.acquire_entry("other", 0, 60)), "never counted"
    assert call(storage.reset()) == 5 and call(storage.get("key-0")) == 0
    assert call(storage.reset()) == 0


def test_a_pickle_of_a_memory_has_what_was_counted() -> None:
    storage: Any = storage_from_string("ratekeeper+memory://", wrap_exceptions=True)
    storage.incr("key", 60, 2)
    storage.acquire_entry("moving", 2, 60)
    storage.acquire_sliding_window_entry("sliding", 2, 60)
    restored = pickle.loads(pickle.dumps(storage))
    assert restored.incr("key", 60) == 3 and storage.get("key") == 2
    assert [restored.acquire_entry("moving", 2, 60) for _ in range(2)] == [True, False]
    assert [restored.acquire_sliding_window_entry("sliding", 2, 60) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("uri", ["ratekeeper+memory+dir://", "async+ratekeeper+memory+dir://"])
def test_a_memory_with_a_directory_is_a_storage(uri: str, tmp_path: Path) -> None:
    """The scheme was registered and refused."""
    uri += str(tmp_path / "data")
    is_async = uri.startswith("async")

    def call(made: Any) -> Any:
        async def awaited() -> Any:
            return await made

        return asyncio.run(awaited()) if is_async else made

    storage: Any = storage_from_string(uri, max_keys=10_000)
    assert [call(storage.incr("key", 3_600)) for _ in range(2)] == [1, 2]
    told = pickle.dumps(storage)
    del storage
    storage = pickle.loads(told)
    assert call(storage.incr("key", 3_600)) == 3, "what is in the directory is not counted twice"
    assert call(storage.reset()) == 1 and call(storage.get("key")) == 0
    with pytest.raises(ConfigurationError, match="deadline"):
        storage_from_string(uri, deadline=1.0)


def test_a_pickle_of_a_server_leads_there(redis_backend: Backend) -> None:
    assert redis_backend.server is not None
    storage: Any = storage_from_string(f"ratekeeper+{redis_backend.server.url}", key_prefix="mine", deadline=10.0)
    storage.incr("key", 60)
    assert pickle.loads(pickle.dumps(storage)).incr("key", 60) == 2
