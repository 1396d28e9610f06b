"""`ratekeeper.testing`: what programs test their limits with."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from ratekeeper import Charge, Limiter, Rule
from ratekeeper.testing import RateLimits


def test_time_stands_still_until_it_is_moved() -> None:
    limits = RateLimits()
    limiter = Limiter(limits.store, Rule("r", "1/min fixed_window"))
    assert limiter.check("ann") and not limiter.check("ann")
    before = limits.now
    limits.advance(59.999)
    assert not limiter.check("ann")
    limits.advance(0.001)
    assert limiter.check("ann") and limits.now == before + 60


def test_reset_forgets_everything_that_was_counted() -> None:
    limits = RateLimits()
    texts = [
        "1/366d fixed_window", "1/366d sliding_window", "1/366d sliding_log", "1/366d", "1/366d leaky_bucket", "1/366d concurrency",
        "1 per calendar month",
    ]
    charges = [Charge(f"limit-{number}", text, "ann") for number, text in enumerate(texts)]
    for charge in charges:
        assert limits.store.check(charge) and not limits.store.check(charge)
    limits.store.once(charges[0], "id")
    limits.reset()
    assert all(limits.store.check(charge) for charge in charges)


def test_the_fixture_is_reset_between_tests(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ratekeeper.testing.plugin"]\n')
    (tmp_path / "test_program.py").write_text(
        "import pytest\n"
        "from ratekeeper import Limiter, Rule\n"
        "@pytest.mark.parametrize('attempt', [1, 2])\n"
        "def test_limit(rate_limits, attempt):\n"
        "    limiter = Limiter(rate_limits.store, Rule('r', '1/h'))\n"
        "    assert limiter.check('ann') and not limiter.check('ann')\n"
        "    rate_limits.advance(3600)\n"
        "    assert limiter.check('ann')\n"
    )
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:ddtrace", "-p", "no:asyncio", "-p", "no:cacheprovider", "test_program.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "2 passed" in result.stdout, result.stdout + result.stderr
