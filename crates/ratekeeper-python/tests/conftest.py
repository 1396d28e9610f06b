"""What the tests share: servers, and a store of every kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from servers import MongoServer, RedisServer

from ratekeeper import ManualClock, Store

# On a busy machine an answer may take its time; what tests outages says another.
DEADLINE = 10.0
SERVERS = ("redis-7", "valkey-9")


@dataclasses.dataclass
class Backend:
    """A kind of store, empty."""

    name: str
    server: RedisServer | None

    def store(self, **options: Any) -> Store:
        """Another store on the same counters; in memory, one of its own."""
        if self.server is None:
            return Store.memory(**options)
        return Store.redis(self.server.url, **{"deadline": DEADLINE, **options})

    def client(self) -> redis.Redis:
        """A client beside ours."""
        assert self.server is not None
        return redis.Redis(port=self.server.port, decode_responses=True)


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[str, RedisServer]]:
    servers: dict[str, RedisServer] = {}
    try:
        for name in SERVERS:
            servers[name] = RedisServer(name)
        yield servers
    finally:
        for server in servers.values():
            server.close()


def _backend(name: str, servers: dict[str, RedisServer]) -> Backend:
    server = servers.get(name)
    if server is not None:
        with redis.Redis(port=server.port) as client:
            client.flushall()
    return Backend(name, server)


@pytest.fixture(params=["memory", *SERVERS])
def backend(request: pytest.FixtureRequest, _servers: dict[str, RedisServer]) -> Backend:
    """Every kind of store in turn."""
    return _backend(request.param, _servers)


@pytest.fixture(params=SERVERS)
def remote(request: pytest.FixtureRequest, _servers: dict[str, RedisServer]) -> Backend:
    """Every server in turn."""
    return _backend(request.param, _servers)


@pytest.fixture
def redis_backend(_servers: dict[str, RedisServer]) -> Backend:
    """Redis 7, where one server will do."""
    return _backend("redis-7", _servers)


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may end or pause."""
    server = RedisServer("redis-7")
    yield server
    server.resume()
    server.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    """A store of every kind in turn, empty."""
    return backend.store()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still."""
    return ManualClock()


@pytest.fixture(scope="session")
def mongodb() -> Iterator[MongoServer]:
    """A server with MongoDB's protocol; tests use databases of their own."""
    server = MongoServer("ferretdb")
    yield server
    server.close()
