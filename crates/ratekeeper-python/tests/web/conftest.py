"""What the tests of the web frameworks share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from web.web_servers import Client, asgi_server

Serve = Callable[..., Client]


@pytest.fixture(autouse=True)
def _no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the developer's shell says is not what is tested.
    monkeypatch.delenv("RATE_LIMIT_MODE", raising=False)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves applications by real uvicorns until the end of the test."""
    with contextlib.ExitStack() as servers:

        def start(app: Any, **options: Any) -> Client:
            return servers.enter_context(asgi_server(app, **options))

        yield start
