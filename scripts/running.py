"""Processes that scripts start for a test: ports, and waiting until they answer."""

import contextlib
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
SERVERS = ROOT / "target" / "servers"
BINARY = ROOT / "target" / "debug" / "ratekeeper"
START_SECONDS = 60


class Broken(Exception):
    """Something that has to be there for the test is not."""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(what: str, holds: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """Polls until something holds; an error names it."""
    end = time.monotonic() + START_SECONDS
    while not holds():
        if process is not None and process.poll() is not None:
            raise Broken(f"{what}: the process ended with {process.returncode}")
        if time.monotonic() > end:
            raise Broken(f"{what}: not within {START_SECONDS} seconds")
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether a port accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
