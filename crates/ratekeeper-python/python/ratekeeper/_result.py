"""The outcome of a limit in the words of Application Kit."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

from ._native import Decision, Limiter, Quota, Rule, Verdict


@dataclasses.dataclass(frozen=True)
class RateLimitResult:
    """What one limit said, beside the full `Decision`."""

    is_over_limit: bool
    request_count: int
    """Units used in the window, this request's included if it was charged; at most `max_requests`."""
    ttl: int
    """Seconds until the window ends, rounded up."""
    max_requests: int
    policy_name: str = "requests"
    expiry: int | None = dataclasses.field(default=None, compare=False)
    """The window in seconds, if it is known."""

    @property
    def remaining(self) -> int:
        """Units left; never below 0."""
        return max(0, self.max_requests - self.request_count)

    def to_headers(self) -> dict[str, str]:
        """The legacy header fields."""
        return {
            "RateLimit-Limit": str(self.max_requests),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.ttl),
        }

    def to_structured_headers(self) -> dict[str, str]:
        """RateLimit-Policy and RateLimit."""
        name = json.dumps(self.policy_name)
        window = "" if self.expiry is None else f";w={self.expiry}"
        return {
            "RateLimit-Policy": f"{name};q={self.max_requests}{window}",
            "RateLimit": f"{name};r={self.remaining};t={self.ttl}",
        }

    @classmethod
    def from_lua_result(cls, raw: Sequence[int | str | bytes], policy_name: str = "requests") -> RateLimitResult:
        """What Application Kit's script has said: whether it is over the limit, count, ttl, limit, and perhaps the window."""
        numbers = [int(part) for part in raw]
        if len(numbers) not in (4, 5):
            raise ValueError(f"raw: got {len(numbers)} values; expected 4 or 5, as the script says them")
        over, count, ttl, limit = numbers[:4]
        return cls(bool(over), count, ttl, limit, policy_name, numbers[4] if len(numbers) == 5 else None)

    @classmethod
    def both(cls, denied: Decision | RateLimitResult) -> tuple[Decision, RateLimitResult]:
        """A denial in both forms. If nothing was counted, as in an outage, all that is known is that it is over."""
        if isinstance(denied, RateLimitResult):
            return denied._decision(), denied
        return denied, cls.of(denied) or cls(True, 0, 0, 0)

    def _decision(self) -> Decision:
        """A denial that says the same, of a limiter that nobody else uses."""
        window = Quota.fixed_window(max(1, self.max_requests), max(1, self.ttl))
        limiter = Limiter(None, Rule(self.policy_name, window, everyone=True))
        limiter.check(cost=window.limit)
        return limiter.check()

    @classmethod
    def of(cls, decision: Decision, verdict: Verdict | None = None) -> RateLimitResult | None:
        """Of one verdict of a decision, the strictest unless said otherwise; None if nothing was counted."""
        verdict = verdict or decision.strictest or next(iter(decision.verdicts), None)
        if verdict is None:
            return None
        return cls(
            is_over_limit=not verdict.admitted,
            request_count=max(0, verdict.quota.capacity - verdict.remaining),
            ttl=math.ceil(verdict.reset_after),
            max_requests=verdict.quota.capacity,
            policy_name=verdict.policy,
            expiry=math.ceil(verdict.window),
        )
