"""Decisions that come after whoever asked has been cancelled.

A check that is on its way to a server is not called back: its place is taken, and nobody
would ever leave it.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ._native import Decision

GiveBack = Callable[[Decision], Awaitable[object]]


async def taken(asked: Awaitable[Decision], give_back: GiveBack) -> Decision:
    """Awaits a decision. If that is cancelled, the places it holds are given back when it comes."""
    if not asyncio.isfuture(asked):
        outlasting = getattr(asked, "outlasting", None)
        # Without it, the decision is there already.
        return await asked if outlasting is None else await _taken_in_trio(asked, outlasting, give_back)
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(functools.partial(_leave, give_back))
        raise


async def _taken_in_trio(asked: Any, outlasting: Callable[[], Awaitable[Decision]], give_back: GiveBack) -> Decision:
    try:
        return await outlasting()
    except BaseException:
        asked.add_done_callback(functools.partial(_leave, give_back))
        raise


def _leave(give_back: GiveBack, asked: asyncio.Future[Decision]) -> None:
    if not asked.cancelled() and asked.exception() is None and asked.result().holds:
        give_back(asked.result())


async def sleep(seconds: float) -> None:
    """Sleeps in whatever loop this is."""
    if "trio" in sys.modules:
        import trio

        from ._trio import is_task

        if is_task():
            return await trio.sleep(seconds)
    await asyncio.sleep(seconds)


async def all_of(begun: Iterable[Awaitable[object]]) -> None:
    """Awaits calls that run on by themselves: all have begun before the first is awaited, which may be cancelled."""
    for given in list(begun):
        await given
