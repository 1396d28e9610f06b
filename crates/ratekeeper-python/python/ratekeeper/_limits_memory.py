"""What the storage for `limits` remembers of its counters in memory, so that it can be reset and pickled as that library's own."""

from __future__ import annotations

import threading
from typing import Any

from ._forks import renew_in_children

# Of more keys, the ones that were used longest ago are not counted by `reset()`, and not in a pickle.
KEYS_TOLD_MAX = 100_000

# The kind of counter, its key, the limit and the window.
Known = tuple[str, str]
Terms = tuple[int, int]


class Seen:
    """The keys that were charged, the latest last."""

    def __init__(self) -> None:
        self._keys: dict[Known, Terms] = {}
        self._lock = threading.Lock()
        renew_in_children(self)

    def after_fork(self) -> None:
        """A thread that notes a key at that moment is not in the child."""
        self._lock = threading.Lock()

    def note(self, kind: str, key: str, limit: int, expiry: int) -> None:
        """A key that was charged."""
        with self._lock:
            self._keys.pop((kind, key), None)
            self._keys[kind, key] = (limit, expiry)
            if len(self._keys) > KEYS_TOLD_MAX:
                del self._keys[next(iter(self._keys))]

    def take(self) -> list[tuple[Known, Terms]]:
        """All of them, and forgets them."""
        with self._lock:
            found, self._keys = list(self._keys.items()), {}
            return found

    def all(self) -> list[tuple[Known, Terms]]:
        """All of them."""
        with self._lock:
            return list(self._keys.items())

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return Seen, ()
