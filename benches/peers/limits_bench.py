#!/usr/bin/env python3
"""Python's `limits` on Redis, as a process that `make bench-redis` commands.

    limits_bench.py REDIS_URL

It says what it is in one line. Then it reads commands, one a line, does each and
answers it with a line, until its input ends:

    fill COST        CALLERS KEYS PREFIX TIERS   every key once, at this cost
    time MILLIS      CALLERS KEYS PREFIX TIERS   random keys for so long
    hammer ATTEMPTS  CALLERS KEYS PREFIX TIERS   so many attempts, keys in turn

TIERS are `limit/seconds`, joined by commas: all must admit. The answer is: checks,
admitted, failed, microseconds it took, of the median and of the slowest hundredth,
and of this process's CPU time.

Fixed windows, because they are what it does fastest; redis-py instead of its default
client for the same reason. Tiers are asked one after the other, as its users do.
"""

import asyncio
import importlib.metadata
import itertools
import platform
import random
import sys
import time

import uvloop
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter

CONNECTIONS_MAX = 600  # above the largest number of callers


class Bench:
    """The limiter, and what one command has come to so far."""

    def __init__(self, url: str) -> None:
        storage = RedisStorage(f"async+{url}", implementation="redispy", max_connections=CONNECTIONS_MAX)
        self.limiter = FixedWindowRateLimiter(storage)
        self.latencies: list[float] = []
        self.admitted = 0
        self.failed = 0

    async def check(self, tiers: list[RateLimitItem], key: str, cost: int) -> bool:
        """Asks all tiers, until one denies."""
        for tier in tiers:
            if not await self.limiter.hit(tier, key, cost=cost):
                return False
        return True

    async def caller(self, tiers: list[RateLimitItem], keys, prefix: str, cost: int, end: float) -> None:
        """Asks for key after key, each when the one before is answered."""
        last = time.perf_counter()
        for key in keys:
            try:
                # On a line of its own: what is added to must not be read before the wait.
                passed = await self.check(tiers, f"{prefix}:{key}", cost)
                self.admitted += passed
            except Exception as error:  # noqa: BLE001: whatever it is, it is no answer
                self.failed += 1
                print(f"limits: {error!r}", file=sys.stderr)
            now = time.perf_counter()
            self.latencies.append(now - last)
            last = now
            if now >= end:
                break

    async def run(self, line: str) -> str:
        """Does a command."""
        work, amount, callers, keys, prefix, quotas = line.split()
        amount, callers, keys = int(amount), int(callers), int(keys)
        tiers = [RateLimitItemPerSecond(int(limit), int(seconds)) for limit, seconds in
                 (quota.split("/") for quota in quotas.split(","))]
        self.latencies, self.admitted, self.failed = [], 0, 0
        cost = amount if work == "fill" else 1
        indices = {
            "fill": iter(range(keys)),
            "time": (random.randrange(keys) for _ in itertools.count()),
            "hammer": (attempt % keys for attempt in range(amount)),
        }[work]
        cpu, start = time.process_time(), time.perf_counter()
        end = start + amount / 1000 if work == "time" else float("inf")
        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(self.caller(tiers, indices, prefix, cost, end))
        elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
        ordered = sorted(self.latencies)
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        times = [round(seconds * 1e6) for seconds in (elapsed, p50, p99, cpu)]
        return " ".join(map(str, [len(ordered), self.admitted, self.failed, *times]))


def main() -> None:
    """Reads commands until there are no more."""
    packages = ("limits", "redis", "hiredis", "uvloop")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    print(f"Python {platform.python_version()}: {', '.join(versions)}", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        bench = Bench(sys.argv[1])
        for line in sys.stdin:
            print(runner.run(bench.run(line)), flush=True)


if __name__ == "__main__":
    main()
