"""Real servers for tests: each on a free port of the loopback, in a folder of its own.

The executables are those of `make servers`, in the folder that RATEKEEPER_SERVERS names or
in `target/servers` of the repository. One that is missing is a failure, never skipped.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(os.environ.get("RATEKEEPER_SERVERS") or REPOSITORY / "target" / "servers")
START_DEADLINE = 60.0
# Below the ports that the kernel gives to connections. A client that keeps trying a dead server in
# that range would one day be given its port, and the server could not come back.
PORTS = range(20_000, 32_000)
# Ports that were free may be taken when a server gets there.
PORT_TRIES = 5
# It reads on when this process has ended, however it did, and ends the server as well.
WATCHDOG = 'read -r _; kill -KILL "$1"; rm -rf -- "$2"'


def wait_for(condition: Callable[[], T], deadline: float = 60.0) -> T:
    """Waits until a condition holds, and returns what it says."""
    end = time.monotonic() + deadline
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"not within {deadline} s: {condition}"
        time.sleep(0.01)


def bound() -> socket.socket:
    """A socket at a port of the loopback that nobody else has; it does not listen."""
    while True:
        found = socket.socket()
        try:
            found.bind(("127.0.0.1", random.choice(PORTS)))
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return found


def free_port() -> int:
    """A port of the loopback that nobody has just now."""
    with bound() as found:
        port: int = found.getsockname()[1]
        return port


@contextlib.contextmanager
def nobody() -> Iterator[int]:
    """A port that is kept from everybody, so that nobody answers there."""
    with bound() as found:
        yield found.getsockname()[1]


def executable(name: str) -> pathlib.Path:
    """One of the servers that `make servers` sets up."""
    path = FOLDER / name
    assert path.exists(), f"{path} is missing: run `make servers`"
    return path


class _Process:
    """A process in a temporary folder that does not outlive us."""

    def __init__(self, name: str) -> None:
        self.name = name
        for _ in range(PORT_TRIES):
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ratekeeper-"))
            self.port = free_port()
            if self._start():
                return
            log = self._log()
            shutil.rmtree(self.folder)
            assert "address already in use" in log.lower(), f"{name} did not start:\n{log}"
        raise AssertionError(f"of {PORT_TRIES} free ports all were taken when {name} got there")

    def command(self) -> list[str]:
        """How it is started."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it is up, asked in a way that nobody else can answer."""
        raise NotImplementedError

    def _log(self) -> str:
        return (self.folder / "log").read_text()[-2000:]

    def _start(self) -> bool:
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=os.environ | {"LC_ALL": "C"},
            )
        pid = self._process.pid
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", str(pid), str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        end = time.monotonic() + START_DEADLINE
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                return False
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self._watchdog.kill()
        self._watchdog.wait()
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Starts it again on the same port, without data."""
        assert self._start(), f"{self.name} did not start again:\n{self._log()}"

    def pause(self) -> None:
        """Stops it where it is: clients can connect and send, and get no answer."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisServer(_Process):
    """Redis or Valkey: `redis-7`, `redis-6.2`, `valkey-9`."""

    def command(self) -> list[str]:
        options = {
            "port": str(self.port), "bind": "127.0.0.1", "unixsocket": "server.sock",
            "save": "", "appendonly": "no", "daemonize": "no",
        }
        return [str(executable(self.name)), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.settimeout(1)
                client.connect(str(self.folder / "server.sock"))
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"


class ClusterServer(RedisServer):
    """A cluster of one node, which has all slots."""

    def command(self) -> list[str]:
        bus = str(free_port())
        return [*super().command(), "--cluster-enabled", "yes", "--cluster-port", bus]

    def answers(self) -> bool:
        return super().answers() and b"cluster_state:ok" in self._asked(b"CLUSTER INFO\r\n")

    def _start(self) -> bool:
        self._has_slots = False
        return super()._start()

    def _asked(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(self.folder / "server.sock"))
            if not self._has_slots:
                client.sendall(b"CLUSTER ADDSLOTSRANGE 0 16383\r\n")
                self._has_slots = client.recv(16).startswith(b"+OK")
            client.sendall(command)
            return client.recv(4096)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis+cluster://127.0.0.1:{self.port}"


class MongoServer(_Process):
    """FerretDB, which speaks MongoDB's protocol."""

    def command(self) -> list[str]:
        (self.folder / "data").mkdir(exist_ok=True)
        return [str(executable("ferretdb")), "--listen", f"127.0.0.1:{self.port}", "--dir", "data"]

    def answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"
