"""Web servers for tests, and a client that shows what is on the wire."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import threading
import wsgiref.simple_server
from collections.abc import Iterator
from typing import Any

import uvicorn
from servers import free_port, wait_for

TIMEOUT = 30.0


@dataclasses.dataclass(frozen=True)
class Answer:
    """A response: status, header fields in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def limits(self) -> dict[str, str]:
        """The header fields about limits."""
        return {name: value for name, value in self.headers.items() if "ratelimit" in name or name == "retry-after"}


@dataclasses.dataclass(frozen=True)
class Client:
    """Sends each request on a connection of its own."""

    port: int

    def get(self, path: str, **headers: str) -> Answer:
        """A GET; `x_region="eu"` is the field `x-region`."""
        return self.send("GET", path, None, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """A POST of JSON."""
        return self.send("POST", path, json.dumps(body).encode(), **{"content_type": "application/json", **headers})

    def send(self, method: str, path: str, body: bytes | None, **headers: str) -> Answer:
        """Any request."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)) as connection:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            content = response.read()
            names = [name.lower() for name, _ in response.getheaders()]
            assert len(names) == len(set(names)), f"a field twice: {names}"
            return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, content)


@contextlib.contextmanager
def asgi_server(app: Any, **options: Any) -> Iterator[Client]:
    """A real uvicorn in a thread."""
    port = free_port()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        assert server.started, "uvicorn did not start"
        yield Client(port)
    finally:
        server.should_exit = True
        thread.join(TIMEOUT)
        assert not thread.is_alive()


class _ThreadingWsgiServer(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class _Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def wsgi_server(app: Any) -> Iterator[Client]:
    """wsgiref's server, with a thread for each request."""
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, _ThreadingWsgiServer, _Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Client(server.server_port)
    finally:
        server.shutdown()
        thread.join(TIMEOUT)
        server.server_close()


@contextlib.contextmanager
def program(module: str, *arguments: str, **environment: str) -> Iterator[Client]:
    """A server in processes of its own: `python -m gunicorn ...`, told its port as {port}."""
    port = free_port()
    command = [sys.executable, "-m", module, *(word.format(port=port) for word in arguments)]
    here = pathlib.Path(__file__).parent
    process = subprocess.Popen(
        command, cwd=here, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def answers() -> bool:
        assert process.poll() is None, process.communicate()[0].decode()
        try:
            return Client(port).get("/up").status == 200
        except OSError:
            return False

    try:
        wait_for(answers)
        yield Client(port)
    finally:
        process.terminate()
        with contextlib.closing(process.stdout):  # type: ignore[type-var]
            process.communicate(timeout=TIMEOUT)


def run_python(code: str, **environment: str) -> str:
    """Runs a program that must end well; what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=TIMEOUT,
        cwd=pathlib.Path(__file__).parent,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
