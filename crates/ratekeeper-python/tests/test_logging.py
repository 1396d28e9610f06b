"""What the engine has to say reaches Python's `logging`: once for each change, and without a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

import pytest
from conftest import DEADLINE, Backend
from servers import RedisServer

from ratekeeper import Limiter, Policies, PolicyError, PolicyLimiter, Rule, Store

PATIENCE = 30.0
POLICY = 'service = "s"\n[[rules]]\nname = "all"\nkeys = "all"\nquota = "1/h"\n'
# Nobody answers on it, for nobody may.
NOBODY = "redis://127.0.0.1:1"
TO_NOBODY = "server=127.0.0.1:1,"


def lines(caplog: pytest.LogCaptureFixture, about: str) -> list[tuple[str, str]]:
    # Stores of other tests may still have something to say.
    records = [record for record in caplog.records if record.name == "ratekeeper"]
    return [(record.levelname, text) for record in records if about in (text := record.getMessage())]


@pytest.fixture(autouse=True)
def _listening(caplog: pytest.LogCaptureFixture) -> None:
    # What others left behind is told first.
    Store.memory().ping()
    caplog.set_level(logging.INFO, "ratekeeper")
    caplog.clear()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def test_an_outage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(Store.redis(NOBODY), Rule("r", "1/h"))
    until(lambda: limiter.check("a") and lines(caplog, TO_NOBODY))
    for _ in range(200):
        limiter.check("a")
    ((level, text),) = lines(caplog, TO_NOBODY)
    assert level == "WARNING"
    assert text.startswith("circuit breaker open: rules decide by their failure policy (server=127.0.0.1:1, reason=")


async def test_an_outage_is_told_to_who_awaits(caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(Store.redis(NOBODY), Rule("r", "1/h"))
    end = time.monotonic() + PATIENCE
    while not lines(caplog, TO_NOBODY):
        assert time.monotonic() < end
        await limiter.acheck("a")
        await asyncio.sleep(0)
    assert "circuit breaker open" in lines(caplog, TO_NOBODY)[0][1]


def test_an_outage_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer("redis-7")
    try:
        about = f"server=127.0.0.1:{server.port}"
        limiter = Limiter(Store.redis(server.url, deadline=DEADLINE), Rule("r", "1/h"))
        assert limiter.check("a").origin == "store" and lines(caplog, about) == []
        server.kill()
        until(lambda: limiter.check("a").origin == "outage" and lines(caplog, about))
        server.restart()
        until(lambda: limiter.check("a").origin == "store" and any("closed" in text for _, text in lines(caplog, about)))
        # A check that failed before the breaker opened has a line of its own.
        breaker = [line for line in lines(caplog, about) if line[1].startswith("circuit breaker")]
        assert [level for level, _ in breaker] == ["WARNING", "INFO"]
        assert breaker[-1][1].startswith("circuit breaker closed: the store decides again")
    finally:
        server.close()


def test_a_password_that_is_wrong_is_told_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    server = RedisServer("redis-7")
    try:
        url = server.url.replace("redis://", "redis://nobody:geheim@")
        limiter = Limiter(Store.redis(url, deadline=DEADLINE), Rule("r", "1/h"))
        until(lambda: limiter.check("a") and lines(caplog, f":{server.port}"))
        ((_, text),) = lines(caplog, f":{server.port}")
        assert "WRONGPASS" in text.upper() or "AUTH" in text.upper(), text
        assert "geheim" not in caplog.text
    finally:
        server.close()


def test_a_policy_that_is_refused_is_told_on_one_line(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    policies = Policies()
    policies.install(POLICY)
    for _ in range(3):
        with pytest.raises(PolicyError):
            policies.install(POLICY.replace("1/h", "fast\\n"))
    (taken, refused) = lines(caplog, 'source="code"')
    assert taken == ("INFO", 'a policy is in force (source="code", service="s", rules=1)')
    assert refused[0] == "WARNING" and refused[1].startswith('a policy was refused (source="code", reason="code:5:9: ')
    assert "\n" not in refused[1]


def test_what_a_thread_finds_waits_for_a_call(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "s.toml"
    file.write_text(POLICY)
    policies = Policies()
    watch = policies.watch_file(file, debounce=0.01, poll=0.05)
    limiter = PolicyLimiter(None, policies).service("s")
    caplog.clear()
    file.write_text("service = 7")
    until(lambda: limiter.check(key="k") is not None and lines(caplog, str(tmp_path)))
    watch.stop()
    assert "a policy was refused" in lines(caplog, str(tmp_path))[0][1]


def test_two_quotas_on_one_counter_are_told(redis_backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    store = redis_backend.store()
    for name, quota in (("one", "5/60s fixed_window"), ("two", "7/60s fixed_window")):
        limiter = Limiter(store, Rule(name, quota))
        for _ in range(3):
            limiter.check_project("/x", 1, 2)
    ((level, text),) = lines(caplog, "another rule")
    assert level == "WARNING" and text.startswith("another rule with another quota counts on the same counters")


def test_a_handler_may_ask_the_limiter_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    other = Limiter(None, Rule("r", "1/h"))
    seen: list[str] = []

    class Asks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            other.check("a")

    class Fails(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("no")

    logger, handler, wrong = logging.getLogger("ratekeeper"), Asks(), Fails()
    logger.addHandler(handler)
    try:
        Policies().install(POLICY)
        assert sum("a policy is in force" in text for text in seen) == 1
        logger.addFilter(wrong)
        with _unraisable() as raised:
            assert Policies().install(POLICY) == "s", "the call itself is none the worse"
        assert {str(error) for error in raised} == {"no"}
    finally:
        logger.removeHandler(handler)
        logger.removeFilter(wrong)


class _unraisable:
    """What `sys.unraisablehook` is told."""

    def __enter__(self) -> list[BaseException | None]:
        self.told: list[BaseException | None] = []
        self.before, sys.unraisablehook = sys.unraisablehook, lambda told: self.told.append(told.exc_value)
        return self.told

    def __exit__(self, *_: object) -> None:
        sys.unraisablehook = self.before


def test_what_waits_is_told_at_the_end_and_not_by_a_child() -> None:
    # While the file changes, nobody calls; the thread that reads it has more to say than there is room for,
    # unless the machine is so busy that it sees few of the changes.
    program = textwrap.dedent(f"""
        import logging, os, pathlib, sys, tempfile, time
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(process)d %(message)s")
        from ratekeeper import Limiter, Policies, Rule
        folder = tempfile.TemporaryDirectory()
        file = pathlib.Path(folder.name) / "s.toml"
        file.write_text({POLICY!r})
        policies = Policies()
        watch = policies.watch_file(file, debounce=0.001, poll=0.01)
        for number in range(300):
            file.write_text("service = " + str(number))
            time.sleep(0.02)
        watch.stop()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            Limiter(None, Rule("r", "1/h")).check("a")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("end", os.getpid(), flush=True)
    """)
    # A thread that follows files ends a little later than it is told to.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    before, after = result.stdout.split("end ")
    assert before.count("a policy is in force") == 1 and "refused" not in before
    pid, *told = after.splitlines()
    assert all(line.startswith(f"{pid} ") for line in told)
    assert 1 < len(told) <= 257, len(told)
    assert told[-1].endswith("more lines had no room") == (len(told) == 257), told[-1]
