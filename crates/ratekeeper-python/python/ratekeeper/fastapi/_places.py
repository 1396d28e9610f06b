"""Places that requests hold (concurrency) until their responses have been sent."""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._late import GiveBack, all_of, taken
from .._native import Decision

_SCOPE_KEY = "ratekeeper.places"

# Whether any limiter of this process may hold places: to watch a request to its end costs it something.
_expected = False


def expect() -> None:
    """From now on requests are watched to their end."""
    global _expected
    _expected = True


def are_expected() -> bool:
    """Whether requests are to be watched to their end."""
    return _expected


class Places:
    """What one request holds."""

    def __init__(self) -> None:
        self._held: list[tuple[GiveBack, Decision]] = []

    @staticmethod
    def of(scope: MutableMapping[str, Any]) -> Places:
        """Those of a request; RuntimeError if nobody would give them back."""
        places = scope.get(_SCOPE_KEY)
        if places is None:
            raise RuntimeError(
                "a limit of concurrency has nobody to give places back: call ratekeeper.fastapi.setup(app)"
            )
        assert isinstance(places, Places)
        return places

    def keep(self, decision: Decision, give_back: GiveBack) -> None:
        """Holds the places of a decision, if it has any."""
        if decision.holds:
            self._held.append((give_back, decision))

    async def held(self, asked: Awaitable[Decision], give_back: GiveBack) -> Decision:
        """Awaits a decision, and holds its places."""
        decision = await taken(asked, give_back)
        self.keep(decision, give_back)
        return decision

    async def give_back(self) -> None:
        """Gives all of them back."""
        held, self._held = self._held, []
        await all_of(give_back(decision) for give_back, decision in held)

    async def watch(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs an application; places are free when its response has been sent, or it has failed."""
        scope[_SCOPE_KEY] = self

        async def sent(message: Message) -> None:
            await send(message)
            # Background tasks run after the last part, and hold nothing.
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self.give_back()

        try:
            await app(scope, receive, sent)
        finally:
            await self.give_back()
