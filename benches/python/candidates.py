"""What is compared: each candidate makes checks for so long, and says how many it made.

All on the same keys, chosen at random with the same seed, and a fixed window that is never
used up, which is what the peers do fastest.
"""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import threading
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from limits import RateLimitItemPerHour
from limits.aio.strategies import FixedWindowRateLimiter as AsyncFixedWindow
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)
from ratekeeper import Limiter, Quota, Rule, Store

LIMIT = 1_000_000_000
KEYS = [f"user:{number}" for number in range(10_000)]
CALLERS = 64
# Peers wait for as long as it takes; what is measured is no outage.
DEADLINE = 5.0

Check = Callable[[str], Any]
AsyncCheck = Callable[[str], Awaitable[Any]]


@functools.cache
def _keys(seed: int) -> list[str]:
    return random.Random(seed).choices(KEYS, k=20_000)


def _ask(check: Check, end: float, seed: int) -> int:
    """Asks one after the other; the clock is read with every hundredth."""
    keys, count = _keys(seed), 0
    while True:
        for start in range(0, len(keys), 100):
            for key in keys[start : start + 100]:
                if not check(key):
                    raise AssertionError("denied")
            count += 100
            if time.perf_counter() >= end:
                return count


def threads(check: Check, seconds: float, how_many: int) -> float:
    """Checks of so many threads together, per second."""
    counts = [0] * how_many
    start = time.perf_counter()

    def work(index: int) -> None:
        counts[index] = _ask(check, start + seconds, index)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(how_many)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if 0 in counts:
        raise AssertionError("a thread failed")
    return sum(counts) / (time.perf_counter() - start)


def tasks(make: Callable[[], AsyncCheck], seconds: float) -> float:
    """Checks of many tasks on one event loop, each waiting for its answer, per second.

    Clients of the peers belong to an event loop, so each has its own.
    """

    async def caller(check: AsyncCheck, seed: int, end: float) -> int:
        count = 0
        for key in _keys(seed):
            if not await check(key):
                raise AssertionError("denied")
            count += 1
            if time.perf_counter() >= end:
                break
        return count

    async def run() -> float:
        check = make()
        for seed in range(CALLERS):
            await check(_keys(seed)[0])
        start = time.perf_counter()
        counts = await asyncio.gather(*(caller(check, seed, start + seconds) for seed in range(CALLERS)))
        return sum(counts) / (time.perf_counter() - start)

    return uvloop.run(run())


_MADE: list[Limiter] = []


def our_limiter(url: str) -> Limiter:
    """A limiter with one rule."""
    store = Store.memory() if url == "memory" else Store.redis(url, deadline=DEADLINE)
    limiter = Limiter(store, Rule("bench", Quota.fixed_window(LIMIT, 3600)))
    _MADE.append(limiter)
    return limiter


def outages() -> int:
    """How many of our checks were decided without their store; there must be none."""
    return sum(limiter.outages.allowed for limiter in _MADE)


ITEM = RateLimitItemPerHour(LIMIT)


def limits(uri: str, **options: Any) -> Check:
    """A check of `limits`, on a storage of its own or on ours."""
    limiter = FixedWindowRateLimiter(storage_from_string(uri, **options))
    return functools.partial(limiter.hit, ITEM)


def ping(url: str) -> Check:
    """A round trip that decides nothing, by the plainest means: what anything that sleeps for its answer takes at least."""
    address = urllib.parse.urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def check(key: str) -> bytes:
        connection.sendall(b"PING\r\n")
        return connection.recv(64)

    return check


def limits_async(uri: str, **options: Any) -> AsyncCheck:
    """The same, awaited."""
    return functools.partial(AsyncFixedWindow(storage_from_string(uri, **options)).hit, ITEM)
