"""Requests per second: FastAPI under uvicorn, asked by wrk, and Django's handler, asked in this process."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from servers import free_port, wait_for

HERE = pathlib.Path(__file__).parent
CONNECTIONS = 16


@contextlib.contextmanager
def fastapi(kind: str, redis: str) -> Iterator[str]:
    """The application in a process of its own; its URL."""
    port = free_port()
    quiet = ("--no-access-log", "--log-level", "warning")
    command = [sys.executable, "-m", "uvicorn", "web_app:app", "--port", str(port), *quiet]
    process = subprocess.Popen(command, cwd=HERE, env=os.environ | {"WEB_LIMIT": kind, "WEB_REDIS": redis})
    url = f"http://127.0.0.1:{port}/search"
    try:
        wait_for(lambda: process.poll() is not None or wrk(url, 0.1))
        yield url
    finally:
        process.terminate()
        process.wait()


def wrk(url: str, seconds: float) -> float:
    """Requests per second; 0 if it does not answer."""
    # wrk counts whole seconds.
    command = ["wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", f"{max(1, round(seconds))}s", url]
    result = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Requests/sec:\s+([\d.]+)", result.stdout)
    if found is None or "Non-2xx" in result.stdout:
        return 0.0
    return float(found.group(1))


def configure_django(redis: str) -> None:
    """Settings for both limiters on the same server."""
    import django
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis}},
        MIDDLEWARE=["ratekeeper.django.RateLimitMiddleware"],
        RATELIMIT_STORES={"default": {"url": redis, "deadline": 5.0}},
        RATELIMIT_PROJECT=lambda request: (1, 2),
        ROOT_URLCONF="django_urls",
        SECRET_KEY="bench",
    )
    django.setup()


def django_requests(path: str, seconds: float) -> float:
    """Requests per second through all of Django but the server."""
    from django.core.handlers.wsgi import WSGIHandler
    from django.test import RequestFactory

    handler, factory = WSGIHandler(), RequestFactory()
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        for _ in range(10):
            response = handler.get_response(factory.get(path))
            if response.status_code != 200:
                raise AssertionError(f"{path}: {response.status_code} {response.content!r}")
            count += 1
    return count / (now - start)
