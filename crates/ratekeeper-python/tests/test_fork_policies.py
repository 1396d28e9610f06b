"""Forks while policies come from files: what is in force stays in force in the child, and is followed there."""

from __future__ import annotations

import pathlib
import threading
import time

import pytest
from forks import ended_well, fork
from servers import wait_for

from ratekeeper import Policies, PolicyLimiter

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

DOCUMENT = 'service = "{}"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "{}/1h fixed_window"\n'
# So many entries that a reload takes a while.
ENTRIES = 10_000
FORKS = 40
# What the first check of a child may take, in seconds.
FIRST_CHECK_MAX = 0.1


def folder_of(path: pathlib.Path, *services: str) -> pathlib.Path:
    for service in services:
        (path / f"{service}.toml").write_text(DOCUMENT.format(service, 5))
    return path


def limit_of(limiter: PolicyLimiter, service: str) -> int | None:
    verdicts = limiter.check(service, "ann").verdicts
    return verdicts[0].limit if verdicts else None


def test_a_broken_file_withdraws_nothing_in_a_child(tmp_path: pathlib.Path) -> None:
    policies = Policies()
    watch = policies.watch_file(folder_of(tmp_path, "good", "other"), debounce=0.01, poll=0.05)
    limiter = PolicyLimiter(None, policies)
    # As with HUP: the parent does not ask, and the file is broken when its child begins.
    (tmp_path / "other.toml").write_text("broken [")

    def child() -> bool:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            assert (limit_of(limiter, "good"), limit_of(limiter, "other")) == (5, 5)
        (tmp_path / "other.toml").write_text(DOCUMENT.format("other", 7))
        wait_for(lambda: limit_of(limiter, "other") == 7)
        (tmp_path / "good.toml").unlink()
        wait_for(lambda: limit_of(limiter, "good") is None)
        watch.stop()
        return True

    assert ended_well(fork(child))
    watch.stop()


def test_what_is_gone_when_a_child_begins_is_withdrawn(tmp_path: pathlib.Path) -> None:
    policies = Policies()
    watch = policies.watch_file(folder_of(tmp_path, "good", "other"), debounce=0.01, poll=0.05)
    limiter = PolicyLimiter(None, policies)

    def child() -> bool:
        # Before its first call, so nobody follows the folder here yet.
        (tmp_path / "other.toml").unlink()
        wait_for(lambda: limit_of(limiter, "other") is None)
        return limit_of(limiter, "good") == 5

    assert ended_well(fork(child))
    watch.stop()


def test_a_folder_that_is_away_is_tried_again(tmp_path: pathlib.Path) -> None:
    folder, hidden = tmp_path / "policies", tmp_path / "hidden"
    folder.mkdir()
    policies = Policies()
    watch = policies.watch_file(folder_of(folder, "good"), debounce=0.01, poll=0.05)
    limiter = PolicyLimiter(None, policies)
    folder.rename(hidden)

    def child() -> bool:
        assert limit_of(limiter, "good") == 5
        hidden.rename(folder)
        (folder / "good.toml").write_text(DOCUMENT.format("good", 9))
        wait_for(lambda: limit_of(limiter, "good") == 9)
        watch.stop()
        return True

    assert ended_well(fork(child))
    watch.stop()


def large(limit: int) -> str:
    custom = "\n".join(f'"key-{number}" = "{limit}/1h"' for number in range(ENTRIES))
    return DOCUMENT.format("large", limit) + f"[rules.custom]\n{custom}\n"


def held_up() -> float:
    """The time but for what this thread waited for a processor: that is up to the machine."""
    schedstat = pathlib.Path("/proc/thread-self/schedstat").read_text()
    return time.monotonic() - int(schedstat.split()[1]) / 1e9


def test_forks_while_a_large_policy_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text(large(5))
    policies = Policies()
    watch = policies.watch_file(path, debounce=0, poll=0.01)
    limiter = PolicyLimiter(None, policies)
    done = threading.Event()

    def rewrite() -> None:
        limit = 5
        while not done.is_set():
            limit += 1
            fresh = tmp_path / "fresh"
            fresh.write_text(large(limit))
            fresh.rename(path)
            time.sleep(0.05)

    def child() -> bool:
        begun = held_up()
        asked = limiter.check("large", "ann")
        # It neither reads the policy itself nor waits for the thread that does: that takes a hundred times as long.
        return bool(asked.verdicts) and held_up() - begun < FIRST_CHECK_MAX

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(FORKS):
            assert ended_well(fork(child))
    finally:
        done.set()
        writer.join()
        watch.stop()
