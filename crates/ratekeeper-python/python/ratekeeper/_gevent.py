"""What the engine needs of an event loop, where greenlets run. Imported by the engine, and only where gevent is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gevent  # type: ignore[import-untyped, unused-ignore]
from gevent._hub_local import get_hub_if_exists  # type: ignore[import-untyped, unused-ignore]
from gevent.event import AsyncResult  # type: ignore[import-untyped, unused-ignore]

_READABLE = 1
_ATTRIBUTE = "_ratekeeper_loop"


class _Answer(AsyncResult):  # type: ignore[misc]
    """What a greenlet waits for: as much of a future of `asyncio` as the engine asks for."""

    def done(self) -> bool:
        return bool(self.ready())

    def set_result(self, value: Any) -> None:
        self.set(value)


class _Loop:
    """Stands for the hub of one thread, in one process: a child of a fork has the hub, too, but not our sockets."""

    _callback: Callable[[], object]

    def __init__(self, hub: Any) -> None:
        self.process = os.getpid()
        self._hub = hub
        self._waiting = 0
        self._watcher: Any = None

    def create_future(self) -> _Answer:
        return _Answer()

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        self._watcher, self._callback = self._hub.loop.io(descriptor, _READABLE), callback

    def _readable(self) -> None:
        # Not in the hub: what it logs may have to wait for a lock.
        gevent.spawn(self._callback)

    def wait(self, answer: _Answer) -> None:
        """Lets other greenlets run until there is an answer."""
        # Watched only while somebody waits: a program may end when nobody does.
        self._waiting += 1
        if self._waiting == 1:
            self._watcher.start(self._readable)
        try:
            answer.get()
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._watcher.stop()


def running() -> _Loop | None:
    """The loop for the hub of this thread; None if it has none, or is in it: then nothing else can run meanwhile."""
    hub = get_hub_if_exists()
    if hub is None or hub.dead or gevent.getcurrent() is hub:
        return None
    loop: _Loop | None = getattr(hub, _ATTRIBUTE, None)
    if loop is None or loop.process != os.getpid():
        loop = _Loop(hub)
        setattr(hub, _ATTRIBUTE, loop)
    return loop
