"""Threads of ours: none before the first call, so that whoever forks first has nothing to leave behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from conftest import Backend


def run(program: str) -> str:
    code = "import os\ndef threads(): return len(os.listdir('/proc/self/task'))\n" + textwrap.dedent(program)
    # Since Python 3.12, a fork beside other threads is a warning.
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout


def test_what_is_only_made_has_no_thread(redis_backend: Backend) -> None:
    assert redis_backend.server is not None
    run(f"""
        from ratekeeper import Limiter, Policies, PolicyLimiter, Rule, Store
        store = Store.redis({redis_backend.server.url!r}, deadline=10.0)
        limiter = Limiter(store, Rule("r", "3/1h fixed_window"))
        policies = Policies()
        policies.install('service = "s"\\n[[rules]]\\nname = "p"\\ncaller_key = true\\nquota = "5/h"')
        service = PolicyLimiter(store, policies).service("s")
        assert threads() == 1, threads()
        child = os.fork()
        if child == 0:
            os._exit(0 if limiter.check("a").origin == "store" and service.check(key="k") else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert threads() == 1, threads()
        assert limiter.check("a").verdicts[0].remaining == 1 and threads() == 2
    """)


def test_switches_are_followed_though_nobody_has_asked_yet(redis_backend: Backend) -> None:
    assert redis_backend.server is not None
    redis_backend.store().set_switch("r", mode="monitor")
    run(f"""
        import time
        from ratekeeper import Store
        store = Store.redis({redis_backend.server.url!r}, deadline=10.0)
        end = time.monotonic() + 60
        while not store.switches():
            assert time.monotonic() < end
            time.sleep(0.01)
    """)


def test_a_source_that_could_not_be_had_is_not_followed_by_children() -> None:
    run("""
        import asyncio, logging, warnings
        logging.disable()
        warnings.simplefilter("ignore")
        from ratekeeper import Policies, PolicyError, PolicyLimiter
        policies = Policies()
        nobody = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"
        async def ask():
            await policies.awatch_mongodb(nobody, deadline=0.1)
        for attempt in (lambda: policies.watch_mongodb(nobody, deadline=0.1), lambda: asyncio.run(ask())):
            try:
                attempt()
            except PolicyError:
                continue
            raise AssertionError("nobody is there")
        child = os.fork()
        if child == 0:
            PolicyLimiter(None, policies).check("s", "k")
            os._exit(0 if threads() == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0, "the child follows what its parent could not"
    """)
