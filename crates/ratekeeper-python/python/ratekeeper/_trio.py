"""What the engine needs of an event loop, in a run of trio. Imported by the engine, and only where trio is."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import trio


class Answer:
    """What is awaited in a task of trio: as much of a future of `asyncio` as the engine asks for."""

    # What `asyncio.isfuture` looks for, and does not find.
    _asyncio_future_blocking = None

    def __init__(self) -> None:
        self._event = trio.Event()
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._is_cancelled = False
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Whether there is an answer, or nobody wants one any more."""
        return self._event.is_set()

    def cancelled(self) -> bool:
        """Whether nobody wants one any more."""
        return self._is_cancelled

    def exception(self) -> BaseException | None:
        """What the answer raises."""
        return None if self._outcome is None else self._outcome[1]

    def result(self) -> Any:
        """The answer, once there is one."""
        assert self._outcome is not None, "asked before there is an answer"
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    def set_result(self, value: Any) -> None:
        """Hands the answer over."""
        self._outcome = value, None
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        """Hands over that there is none."""
        self._outcome = None, error
        self._finish()

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if not self.done():
            self._is_cancelled = True
            self._finish()

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls it when the answer is there, or at once."""
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def _finish(self) -> None:
        self._event.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    async def outlasting(self) -> Any:
        """Waits for it. If that is cancelled, the answer comes all the same, to the callbacks."""
        await self._event.wait()
        return self.result()

    async def _awaited(self) -> Any:
        try:
            return await self.outlasting()
        finally:
            self.cancel()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._awaited().__await__()

    # So does the engine ask for it.
    __iter__ = __await__


class _Loop:
    """Stands for one run of trio, and ends with it."""

    def create_future(self) -> Answer:
        return Answer()

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        trio.lowlevel.spawn_system_task(self._read, descriptor, callback, name="ratekeeper")

    async def _read(self, descriptor: int, callback: Callable[[], object]) -> None:
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            callback()


_of_run: trio.lowlevel.RunVar[_Loop] = trio.lowlevel.RunVar("ratekeeper")


def is_task() -> bool:
    """Whether this runs in a task of trio."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def running() -> _Loop | None:
    """The loop of the run that this is a task of; None if it is none."""
    if not is_task():
        return None
    try:
        return _of_run.get()
    except LookupError:
        loop = _Loop()
        _of_run.set(loop)
        return loop
