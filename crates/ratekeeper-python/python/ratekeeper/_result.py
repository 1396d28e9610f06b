"""The outcome of a limit in the words of Application Kit."""

from __future__ import annotations

import dataclasses
import math

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
        )
