"""A store in memory whose directory outlives it."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from ratekeeper import Charge, Store, StoreError

QUOTA = "5/d"


def left(store: Store) -> int:
    return store.check(Charge("kept", QUOTA, "ann")).verdicts[0].remaining


def test_counters_and_overrides_are_there_again(tmp_path: Path) -> None:
    url = f"memory+dir://{tmp_path / 'data'}"
    store = Store.open(url)
    assert (store.kind, left(store)) == ("memory", 4)
    store.set_override("/search", "acme", max_requests=7)
    data = store.health.data
    assert data is not None and data["bytes"] > 0 and data["failures"] == 0
    with pytest.raises(ValueError, match="one ratekeeper server, or a Redis"):
        Store.open(url)
    store.flush()
    del store
    assert left(Store.open(url)) == 3
    assert Store.memory().health.data is None


def test_the_end_of_a_program_saves_what_changed(tmp_path: Path) -> None:
    url = f"memory+dir://{tmp_path}"
    program = (
        "from ratekeeper import Charge, Store\n"
        f"store = Store.open({url!r})\n"
        f"print(store.check(Charge('kept', {QUOTA!r}, 'ann')).verdicts[0].remaining)\n"
    )
    for remaining in ("4", "3", "2"):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
        assert ran.stdout.strip() == remaining


def in_a_child(store: Store) -> None:
    assert left(store) == 3, "counters are copied by the fork"
    with pytest.raises(StoreError, match="forked"):
        store.set_override("/search", "acme", max_requests=7)


def test_a_child_of_a_fork_leaves_the_directory_alone(tmp_path: Path) -> None:
    store = Store.open(f"memory+dir://{tmp_path}")
    assert left(store) == 4
    child = multiprocessing.get_context("fork").Process(target=in_a_child, args=(store,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert left(store) == 3
    store.set_override("/search", "acme", max_requests=7)
