"""Bodies of requests that policies look into."""

from __future__ import annotations

import anyio
from starlette.types import Message, Receive


class Body:
    """A body that is looked into first, and goes on whole."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._rest = receive
        self._bytes_max = bytes_max
        self._read: list[Message] = []

    async def read(self, wait: float) -> bytes | None:
        """All of it, if it is short enough and there in time."""
        with anyio.move_on_after(wait):
            return await self._all()
        return None

    async def _all(self) -> bytes | None:
        chunks: list[bytes] = []
        length = 0
        while True:
            message = await self._rest()
            self._read.append(message)
            if message["type"] != "http.request":
                return None
            chunks.append(message.get("body", b""))
            length += len(chunks[-1])
            if length > self._bytes_max:
                return None
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def receive(self) -> Message:
        """What was read comes again, and then the rest."""
        return self._read.pop(0) if self._read else await self._rest()
