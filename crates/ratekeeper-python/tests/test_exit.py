"""Interpreters that end, in whatever they were doing: no hang, no crash, nothing on stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import Backend
from servers import RedisServer

PRELUDE = """
import asyncio, os, sys, threading, time
from ratekeeper import Limiter, Policies, PolicyLimiter, Rule, Store
url = sys.argv[1]
limiter = Limiter(Store.redis(url, deadline=10), Rule("r", "1000000/1h fixed_window"))
"""
# A shell that starts tests in the background has interrupts ignored, and children inherit that.
HEARS_INTERRUPTS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""

SCRIPTS = {
    "made and not used": "",
    "used": "assert limiter.check('a')",
    "awaited": """
        async def main():
            assert await limiter.acheck('a')
        asyncio.run(main())
    """,
    "left under way": """
        async def main():
            for _ in range(500):
                limiter.acheck('a')
        asyncio.run(main())
    """,
    "ended within the loop": """
        async def main():
            checks = [asyncio.ensure_future(limiter.acheck('a')) for _ in range(100)]
            await checks[0]
            sys.exit(0)
        asyncio.run(main())
    """,
    "with daemons that ask": """
        at_work = threading.Barrier(9)
        def ask():
            limiter.check('a')
            at_work.wait()
            while True:
                limiter.check('a')
        for _ in range(8):
            threading.Thread(target=ask, daemon=True).start()
        at_work.wait()
    """,
    "with daemons that wait": """
        at_work = threading.Barrier(5)
        waiting = Limiter(None, Rule("w", "1/1h fixed_window"))
        waiting.check('a')
        def wait():
            at_work.wait()
            waiting.until_allowed('a', 7200)
        for _ in range(4):
            threading.Thread(target=wait, daemon=True).start()
        at_work.wait()
    """,
    "with daemons that have loops": """
        at_work = threading.Barrier(4)
        def ask():
            async def main():
                await limiter.acheck('a')
                at_work.wait()
                while True:
                    await asyncio.gather(*(limiter.acheck('a') for _ in range(50)))
            asyncio.run(main())
        for _ in range(3):
            threading.Thread(target=ask, daemon=True).start()
        at_work.wait()
    """,
    "asked at exit": """
        import atexit
        atexit.register(lambda: limiter.check('a'))
    """,
    "asked by what is collected last": """
        class Last:
            def __del__(self, limiter=limiter):
                limiter.check('a')
        sys.last = Last()
    """,
    "with a policy that is watched": """
        import pathlib, tempfile
        folder = tempfile.mkdtemp()
        path = pathlib.Path(folder) / 'p.toml'
        path.write_text('service = "s"\\n[[rules]]\\nname = "r"\\nkeys = "all"\\nquota = "1/s"\\n')
        policies = Policies()
        watch = policies.watch_file(path)
    """,
    "in a fork that ends like any other": """
        limiter.check('a')
        pid = os.fork()
        limiter.check('a')
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
    """,
    "in a fork that did nothing": """
        import warnings
        limiter.check('a')
        pid = os.fork()
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
    """,
}


def script(name: str) -> list[str]:
    text = PRELUDE + textwrap.dedent(SCRIPTS[name])
    return [sys.executable, "-W", "ignore::DeprecationWarning", "-X", "faulthandler", "-c", text]


@pytest.mark.parametrize("name", SCRIPTS)
def test_exit(redis_backend: Backend, name: str) -> None:
    assert redis_backend.server is not None
    # Several times: what goes wrong at exit goes wrong now and then.
    for _ in range(3):
        result = subprocess.run(
            [*script(name), redis_backend.server.url], capture_output=True, text=True, timeout=60
        )
        assert (result.returncode, result.stderr) == (0, "")


# As a library that was imported first, and waits for its thread at exit.
HOOK = """
import atexit, os, signal, sys, threading
asking, server = threading.Event(), int(sys.argv[2])
def end():
    os.kill(server, signal.SIGCONT)
    asker.join()
atexit.register(end)
"""


def test_a_hook_that_was_there_first_can_wait_for_a_thread_that_asks(own_server: RedisServer) -> None:
    text = HOOK + PRELUDE + """
def ask():
    os.kill(server, signal.SIGSTOP)
    asking.set()
    limiter.check('a')
limiter.check('a')
asker = threading.Thread(target=ask, daemon=True)
asker.start()
asking.wait()
"""
    command = [sys.executable, "-c", text, own_server.url, str(own_server._process.pid)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, "")


WAITS = {
    "memory": "limiter = Limiter(None, Rule('w', '1/1h fixed_window'))",
    "redis": "limiter = Limiter(Store.redis(url, deadline=10), Rule('w', '1/1h fixed_window'))",
}


@pytest.mark.parametrize("where", WAITS)
def test_an_interrupt_ends_a_wait(redis_backend: Backend, where: str) -> None:
    assert redis_backend.server is not None
    waiting = "\nlimiter.check('a')\nprint('waits', flush=True)\nlimiter.until_allowed('a', 7200)\n"
    text = PRELUDE + HEARS_INTERRUPTS + WAITS[where] + waiting
    process = subprocess.Popen(
        [sys.executable, "-c", text, redis_backend.server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    start = time.monotonic()
    # It may not wait yet, but it will not wait any more either.
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode in (130, -signal.SIGINT) and time.monotonic() - start < 10


def test_an_interrupt_ends_a_call_to_a_server_that_does_not_answer(own_server: RedisServer) -> None:
    text = PRELUDE + HEARS_INTERRUPTS + """
store = Store.redis(url, deadline=60)
store.ping()
os.kill(int(sys.argv[2]), signal.SIGSTOP)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    Limiter(store, Rule('r', '1/s')).check('a')
except KeyboardInterrupt:
    print('interrupted', time.monotonic() - start < 10)
finally:
    os.kill(int(sys.argv[2]), signal.SIGCONT)
"""
    pid = str(own_server._process.pid)
    command = [sys.executable, "-c", text, own_server.url, pid]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (result.stdout, result.stderr) == ("interrupted True\n", "")
