"""A busy machine is no outage: a server that answers in time is not taken for a silent one."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest
from servers import RedisServer

from ratekeeper import Limiter, Rule, Store

# Processes that only compute, on two processors.
BUSY = 4
# Calls of each way to make them.
CALLS = 10_000
WINDOW = 3600.0

# Each call has a counter of its own, which keeps the server's time of its charge.
PROGRAM = textwrap.dedent("""
    import asyncio, json, sys, threading, time
    from ratekeeper import Limiter, Rule, Store
    url, way, name, calls, deadline = sys.argv[1:4] + [int(sys.argv[4]), float(sys.argv[5])]
    store = Store.redis(url, deadline=deadline)
    limiter = Limiter(store, Rule("busy", "1/1h fixed_window"))
    while True:
        try:
            store.ping()
            break
        except Exception:
            time.sleep(0.01)
    callers, failed = 100, []

    def keys(caller):
        return [f"{name}-{number}" for number in range(caller, calls, callers)]

    def ask(caller):
        for key in keys(caller):
            made = time.time()
            if limiter.check(key).origin != "store":
                failed.append((key, made))

    async def aask(caller):
        for key in keys(caller):
            made = time.time()
            if (await limiter.acheck(key)).origin != "store":
                failed.append((key, made))

    async def all_tasks():
        await asyncio.gather(*(aask(caller) for caller in range(callers)))

    if way == "threads":
        threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        asyncio.run(all_tasks())
    print(json.dumps(failed))
""")


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Processes that compute, and end with this one."""
    spin = "exec 3<&0; (read -r _ <&3; kill $$ 2>&-) & while :; do :; done"
    children = [subprocess.Popen(["sh", "-c", spin], stdin=subprocess.PIPE) for _ in range(BUSY)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.communicate()


def unanswered(server: RedisServer, way: str, processes: int, deadline: float) -> list[tuple[str, float]]:
    """The calls that were decided without the store, and when each was made."""
    with busy():
        each = str(CALLS // processes)
        arguments = [[server.url, way, f"p{number}", each, str(deadline)] for number in range(processes)]
        children = [
            subprocess.Popen([sys.executable, "-c", PROGRAM, *some], stdout=subprocess.PIPE) for some in arguments
        ]
        outputs = [child.communicate(timeout=120)[0] for child in children]
    assert all(child.returncode == 0 for child in children)
    return [(key, made) for output in outputs for key, made in json.loads(output)]


WAYS = [("threads", 1), ("threads", 4), ("tasks", 4)]


@pytest.mark.parametrize(("way", "processes"), WAYS)
def test_what_the_server_charges_in_time_is_answered(own_server: RedisServer, way: str, processes: int) -> None:
    deadline = 0.025
    failed = unanswered(own_server, way, processes, deadline)
    limiter = Limiter(Store.redis(own_server.url, deadline=10.0), Rule("busy", "1/1h fixed_window"))
    in_time = []
    for key, made in failed:
        now = time.time()
        verdict = limiter.peek(key).verdicts[0]
        charged = now + verdict.reset_after - WINDOW
        if verdict.remaining == 0 and charged - made <= deadline:
            in_time.append((key, charged - made))
    print(f"{way} in {processes}: {len(failed)} of {CALLS} not answered")
    assert not in_time


@pytest.mark.parametrize(("way", "processes"), WAYS)
def test_with_a_longer_deadline_all_is_answered(own_server: RedisServer, way: str, processes: int) -> None:
    assert unanswered(own_server, way, processes, 0.25) == []
