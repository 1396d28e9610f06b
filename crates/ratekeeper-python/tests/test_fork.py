"""Servers that fork: a child has the counters of its parent's server, and connections of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import pathlib
import threading
from collections.abc import Callable

import pytest
from conftest import Backend
from forks import ended_well, fork
from servers import wait_for

from ratekeeper import Limiter, Policies, PolicyLimiter, Rule, Store

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work: Callable[[], bool]) -> None:
    """Runs `work` in a fork of this process; it must end in time, and say that all is well."""
    assert ended_well(fork(work))


def test_a_child_that_fails_ends_and_says_so() -> None:
    def fails() -> bool:
        raise KeyboardInterrupt

    assert not ended_well(fork(fails))
    assert not ended_well(fork(lambda: False))


def test_a_child_connects_anew(remote: Backend) -> None:
    limiter = Limiter(remote.store(), Rule("r", "5/1h fixed_window"))
    assert limiter.check("a")
    for left in (3, 2):
        in_child(lambda left=left: limiter.check("a").verdicts[0].remaining == left)
    assert limiter.check("a").verdicts[0].remaining == 1


def test_children_of_children(redis_backend: Backend) -> None:
    limiter = Limiter(redis_backend.store(), Rule("r", "5/1h fixed_window"))

    def grandchild() -> bool:
        in_child(lambda: limiter.check("a").verdicts[0].remaining == 3)
        return limiter.check("a").verdicts[0].remaining == 2

    assert limiter.check("a")
    in_child(grandchild)


def test_event_loops_in_children(redis_backend: Backend) -> None:
    limiter = Limiter(redis_backend.store(), Rule("r", "100/1h fixed_window"))

    async def ask() -> int:
        return sum(decision.allowed for decision in await asyncio.gather(*(limiter.acheck("a") for _ in range(20))))

    assert asyncio.run(ask()) == 20
    for _ in range(3):
        in_child(lambda: asyncio.run(ask()) == 20)
    assert limiter.peek("a").verdicts[0].remaining == 20


def test_forks_while_threads_ask(redis_backend: Backend) -> None:
    limiter = Limiter(redis_backend.store(), Rule("r", "1000000/1h fixed_window"))
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            limiter.check("a")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(lambda: limiter.check("b").allowed)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_memory_is_copied_and_then_each_process_counts_for_itself() -> None:
    store = Store.memory()
    limiter = Limiter(store, Rule("r", "5/1h fixed_window"))
    store.set_override("r", "org", max_requests=9)
    assert limiter.check("a").verdicts[0].remaining == 4

    def child() -> bool:
        overridden = limiter.check("b", organisation="org").verdicts[0].limit == 9
        return limiter.check("a").verdicts[0].remaining == 3 and overridden

    in_child(child)
    assert limiter.check("a").verdicts[0].remaining == 3


def test_forks_while_memory_is_waited_for() -> None:
    limiter = Limiter(None, Rule("r", "1/10ms fixed_window"))
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            limiter.until_allowed("a", 1)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(lambda: limiter.until_allowed("b", 5).allowed)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _ask(limiter_url: str, prefix: str) -> int:
    limiter = Limiter(Store.redis(limiter_url, prefix=prefix, deadline=10), Rule("r", "5/1h fixed_window"))
    return sum(limiter.check("a").allowed for _ in range(4))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(redis_backend: Backend, method: str) -> None:
    assert redis_backend.server is not None
    _ask(redis_backend.server.url, "warm.")
    with multiprocessing.get_context(method).Pool(3) as pool:
        answers = [pool.apply_async(_ask, (redis_backend.server.url, "")) for _ in range(3)]
        assert sum(answer.get(60) for answer in answers) == 5


def test_a_child_follows_the_policies_of_its_parent(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.toml"
    document = 'service = "s"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "{}/1h"\n'
    path.write_text(document.format(5))
    policies = Policies()
    watch = policies.watch_file(path, debounce=0.01, poll=0.05)
    limiter = PolicyLimiter(None, policies)
    assert limiter.check("s", "a").verdicts[0].limit == 5

    def child() -> bool:
        assert limiter.check("s", "a").verdicts[0].limit == 5
        path.write_text(document.format(7))
        wait_for(lambda: limiter.check("s", "b").verdicts[0].limit == 7)
        watch.stop()
        return True

    in_child(child)
    # A child that never asks, and ends in the ordinary way, must not wait for its parent's thread.
    in_child(lambda: watch.stop() is None)
    wait_for(lambda: limiter.check("s", "b").verdicts[0].limit == 7)
    watch.stop()
