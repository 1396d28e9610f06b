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
from servers import PORT_TRIES, bound, free_port, wait_for

TIMEOUT = 30.0
HERE = pathlib.Path(__file__).parent


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
    place = bound()
    config = uvicorn.Config(app, log_level="critical", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        port = place.getsockname()[1]
        wait_for(lambda: server.started or not thread.is_alive())
        assert server.started, "uvicorn did not start"
        yield Client(port)
    finally:
        server.should_exit = True
        thread.join(TIMEOUT)
        place.close()
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
    for _ in range(PORT_TRIES):
        port = free_port()
        command = [sys.executable, "-m", module, *(word.format(port=port) for word in arguments)]
        process = subprocess.Popen(
            command, cwd=HERE, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            if wait_for(lambda: process.poll() is not None or answers(port)) and process.poll() is None:
                yield Client(port)
                return
        finally:
            process.terminate()
            said = process.communicate(timeout=TIMEOUT)[0].decode()
        assert "in use" in said, f"{module} did not start:\n{said}"
    raise AssertionError(f"of {PORT_TRIES} free ports all were taken when {module} got there")


def answers(port: int) -> bool:
    """Whether the application is up."""
    try:
        return Client(port).get("/up").status == 200
    except OSError:
        return False


def run_python(code: str, **environment: str) -> str:
    """Runs a program that must end well; what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=TIMEOUT,
        cwd=HERE,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
