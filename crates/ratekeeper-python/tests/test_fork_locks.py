"""Forks while threads hold locks of the package: the child has locks of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from forks import ended_well, fork

from ratekeeper._limits_memory import Seen
from ratekeeper.outgoing import OutgoingLimiter, OutgoingLimitExceeded

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

FORKS = 40
THREADS = 8


@contextlib.contextmanager
def hitting(work: Callable[[], object]) -> Iterator[None]:
    """Threads that do the same again and again."""
    done = threading.Event()

    def again() -> None:
        while not done.is_set():
            work()

    threads = [threading.Thread(target=again) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """A lock that another thread has."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def all_end_well(child: Callable[[], bool]) -> bool:
    return all([ended_well(pid) for pid in [fork(child) for _ in range(FORKS)]])


def test_keys_of_the_limits_storage_are_noted_in_a_child() -> None:
    seen = Seen()

    def child() -> bool:
        seen.note("fixed", "child", 1, 1)
        return (("fixed", "child"), (1, 1)) in seen.take()

    with held(seen._lock):
        assert ended_well(fork(child))
    with hitting(lambda: seen.note("fixed", "parent", 1, 1)):
        assert all_end_well(child)
    seen.note("fixed", "parent", 1, 1)
    assert seen.all() == [(("fixed", "parent"), (1, 1))]


def test_outgoing_calls_wait_for_their_turn_in_a_child() -> None:
    limiter = OutgoingLimiter(None, {}, waiting_max=1)

    def call() -> None:
        with contextlib.suppress(OutgoingLimitExceeded), limiter.slot("a.example"):
            limiter.observe("b.example", 429, {"retry-after": "1"})

    def child() -> bool:
        with limiter.slot("a.example"):
            limiter.observe("b.example", 429, {"retry-after": "1"})
        return limiter.waiting == 0 and limiter.paused("b.example") > 0

    with held(limiter._lock):
        assert ended_well(fork(child))
    with hitting(call):
        assert all_end_well(child)
    # One that waits in the parent is none that waits in a child, and its end is counted once.
    limiter.begin_waiting("a.example")

    def after_waiting() -> bool:
        limiter.end_waiting()
        return limiter.waiting == 0 and child()

    assert ended_well(fork(after_waiting))
    limiter.end_waiting()
    assert limiter.waiting == 0
