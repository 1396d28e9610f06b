"""What a child of a fork makes anew: there, nobody releases a lock that another thread of its parent held."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewed(Protocol):
    """Something with a lock, or with a count of threads that a child does not have."""

    def after_fork(self) -> None:
        """Makes it anew; no other thread runs yet."""


_living: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_in_children(what: Renewed) -> None:
    """Calls `what.after_fork()` in each child of a fork, for as long as it is there."""
    _living.add(what)


def _after_fork() -> None:
    for what in list(_living):
        what.after_fork()


os.register_at_fork(after_in_child=_after_fork)
