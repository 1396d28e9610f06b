"""For the tests of programs that have limits: a store in memory whose clock stands still until it is moved.

    from ratekeeper.testing import RateLimits

    limits = RateLimits()
    setup(app, store=limits.store)
    ...
    limits.advance(60)      # a minute later
    limits.reset()          # as if nothing had been counted

With pytest, `pytest_plugins = ["ratekeeper.testing.plugin"]` in conftest.py has it as the fixture `rate_limits`, which is
reset before every test.
"""

from __future__ import annotations

from .._native import ManualClock, Store

__all__ = ["RateLimits"]

# No window is longer than a year of 366 days, and no penalty and no reservation either.
_OVER_SECONDS = 2 * 367 * 86_400


class RateLimits:
    """A store, its clock, and what tests do with them. Shared by limiters that were made with `store`."""

    def __init__(self, *, max_keys: int = 1_000_000) -> None:
        self.clock = ManualClock()
        self.store = Store.memory(max_keys=max_keys, clock=self.clock)

    @property
    def now(self) -> float:
        """The instant at which the clock stands, seconds since 1970."""
        return self.store.now

    def advance(self, seconds: float) -> None:
        """Lets time pass at once."""
        self.clock.advance(seconds)

    def reset(self) -> None:
        """Forgets everything that was counted, reserved and held.

        Overrides without an end stay: they are settings, not counts. Whoever sets one in a test deletes it there, or gives it a
        `ttl`, which is over then.
        """
        # Limiters hold on to their store, so it stays the same one: all windows in it are over.
        self.clock.advance(_OVER_SECONDS)
