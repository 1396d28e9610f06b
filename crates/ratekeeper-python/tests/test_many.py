"""Threads, tasks and event loops, many of each at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import threading
import weakref
from typing import Any

import pytest
import uvloop
from conftest import Backend
from servers import RedisServer, wait_for

from ratekeeper import Limiter, ManualClock, Rule, Store, StoreError

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("quota", ["5/1h fixed_window", "5/1h", "5/1h sliding_log"])
def test_a_hundred_threads_on_a_limit_of_five(backend: Backend, quota: str) -> None:
    limiter = Limiter(backend.store(), Rule("r", quota))
    barrier = threading.Barrier(100)

    def ask(_: int) -> bool:
        barrier.wait()
        return limiter.check("a").allowed

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(ask, range(100))) == 5


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_thousand_tasks_on_a_limit_of_five(backend: Backend, make_loop: Any) -> None:
    limiter = Limiter(backend.store(), Rule("r", "5/1h fixed_window"))

    async def all_of_them() -> int:
        decisions = await asyncio.gather(*(limiter.acheck("a") for _ in range(1000)))
        return sum(decision.allowed for decision in decisions)

    assert run(make_loop, all_of_them()) == 5


def run(make_loop: Any, coroutine: Any) -> Any:
    loop = make_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.mark.parametrize("make_loop", LOOPS)
def test_several_loops_in_several_threads(remote: Backend, make_loop: Any) -> None:
    limiter = Limiter(remote.store(), Rule("r", "100/1h fixed_window"))

    async def ask() -> int:
        decisions = [await limiter.acheck("a") for _ in range(10)]
        decisions += await asyncio.gather(*(limiter.acheck("a") for _ in range(40)))
        return sum(decision.allowed for decision in decisions)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: run(make_loop, ask()), range(4))) == 100


def test_loops_that_take_turns_in_one_thread(remote: Backend) -> None:
    limiter = Limiter(remote.store(), Rule("r", "100/1h fixed_window"))
    loops = [asyncio.new_event_loop() for _ in range(3)]

    async def ask() -> bool:
        return (await limiter.acheck("a")).allowed

    for _ in range(5):
        assert all(loop.run_until_complete(ask()) for loop in loops)
    assert limiter.peek("a").verdicts[0].remaining == 85
    for loop in loops:
        loop.close()


async def test_sync_calls_beside_awaited_ones(remote: Backend) -> None:
    limiter = Limiter(remote.store(), Rule("r", "100000/1h fixed_window"))

    def ask() -> int:
        return sum(limiter.check("a").allowed for _ in range(50))

    in_threads = [asyncio.to_thread(ask) for _ in range(4)]
    in_tasks = [limiter.acheck("a") for _ in range(200)]
    answers = await asyncio.gather(*in_threads, *in_tasks)
    assert sum(int(answer) if isinstance(answer, int) else answer.allowed for answer in answers) == 400
    assert limiter.peek("a").verdicts[0].remaining == 100000 - 400


async def test_memory_takes_no_turn_of_the_loop() -> None:
    limiter = Limiter(None, Rule("r", "100/1h"))
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    asyncio.get_running_loop().call_soon(turn)
    for _ in range(50):
        assert (await limiter.acheck("a")).allowed
    assert turns == 0


def test_memory_can_be_awaited_without_a_loop() -> None:
    limiter = Limiter(None, Rule("r", "1/1h"))

    async def ask() -> bool:
        return (await limiter.acheck("a")).allowed

    coroutine = ask()
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value is True


def test_servers_cannot_be_asked_without_a_loop(redis_backend: Backend) -> None:
    limiter = Limiter(redis_backend.store(), Rule("r", "1/1h"))
    with pytest.raises(RuntimeError, match="no running event loop"):
        limiter.acheck("a")


@pytest.mark.parametrize("make_loop", LOOPS)
def test_whoever_is_cancelled_does_not_hold_up_the_others(own_server: RedisServer, make_loop: Any) -> None:
    limiter = Limiter(Store.redis(own_server.url, deadline=20), Rule("r", "100/1h fixed_window"))

    async def cancelled() -> int:
        assert (await limiter.acheck("a")).allowed
        own_server.pause()
        tasks = [asyncio.ensure_future(limiter.acheck("a")) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[:10]:
            task.cancel()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(tasks[10]), 0.05)
        own_server.resume()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True] * 10 + [False] * 10
        return sum(1 for answer in answers[10:] if not isinstance(answer, BaseException) and answer.allowed)

    assert run(make_loop, cancelled()) == 10
    assert 100 - limiter.peek("a").verdicts[0].remaining in range(11, 22), "the cancelled may have been charged"


async def test_a_wait_that_is_cancelled_takes_nothing(backend: Backend, clock: ManualClock) -> None:
    limiter = Limiter(backend.store(clock=clock), Rule("r", "1/300ms fixed_window"))
    assert limiter.check("a")
    waiting = [asyncio.ensure_future(limiter.auntil_allowed("a", 60)) for _ in range(5)]
    await asyncio.sleep(0.05)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    # Only now may anybody pass; who still waited would ask again within that time.
    clock.advance(0.3)
    await asyncio.sleep(0.4)
    assert limiter.peek("a").verdicts[0].remaining == 1


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_loop_that_is_closed_while_checks_are_under_way(own_server: RedisServer, make_loop: Any) -> None:
    limiter = Limiter(Store.redis(own_server.url, deadline=20), Rule("r", "1000/1h fixed_window"))
    for _ in range(5):
        loop = make_loop()
        own_server.pause()

        async def leave() -> None:
            for _ in range(50):
                limiter.acheck("a")

        loop.run_until_complete(leave())
        loop.close()
        del loop
        gc.collect()
        own_server.resume()
        assert limiter.check("a").allowed
    assert limiter.peek("a").verdicts[0].remaining <= 1000 - 5


async def test_errors_reach_whoever_awaits(own_server: RedisServer) -> None:
    store = Store.redis(own_server.url, deadline=5)
    await store.aping()
    own_server.kill()
    with pytest.raises(StoreError) as raised:
        while True:
            await store.aget_override("/x", 1, 2)
    assert raised.value.kind in ("unavailable", "timeout") and raised.value.is_transient
    with pytest.raises(ValueError, match="override: got endpoint of 0 bytes"):
        await store.aget_override("", 1, 2)
    own_server.restart()


def test_loops_that_come_and_go_leave_nothing_behind(remote: Backend) -> None:
    limiter = Limiter(remote.store(), Rule("r", "100000/1h fixed_window"))

    async def ask() -> None:
        assert (await limiter.acheck("a")).allowed

    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    asyncio.run(ask())
    before = open_files()
    for make_loop in LOOPS * 20:
        run(make_loop, ask())
    assert open_files() <= before + 2


@pytest.mark.parametrize("make_loop", LOOPS)
def test_loops_with_checks_under_way_leave_nothing_behind(own_server: RedisServer, make_loop: Any) -> None:
    limiter = Limiter(Store.redis(own_server.url, deadline=20), Rule("r", "100000/1h fixed_window"))
    assert limiter.check("a").allowed
    loops: list[weakref.ref[Any]] = []

    async def give_up() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.acheck("a"), 0.001)

    def alive() -> int:
        gc.collect()
        return sum(loop() is not None for loop in loops)

    before = len(os.listdir("/proc/self/fd"))
    own_server.pause()
    for _ in range(20):
        run(make_loop, give_up())
    own_server.resume()
    assert alive() == 0
    # Those under way let go of their sockets when they are answered.
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before + 2)


async def test_answers_can_be_awaited_again(backend: Backend) -> None:
    limiter = Limiter(backend.store(), Rule("r", "5/1h fixed_window"))
    asked = limiter.acheck("a")
    first = await asked
    assert first.allowed and await asked is first
    assert limiter.peek("a").verdicts[0].remaining == 4, "asked once"
