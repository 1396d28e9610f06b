"""The outcome of a limit in the words of Application Kit."""

from __future__ import annotations

import dataclasses
import math

from ._native import Decision, Verdict


@dataclasses.dataclass(frozen=True)
class RateLimitResult:
    """What one limit said, beside the full `Decision`."""

    is_over_limit: bool
    request_count: int
    """Units used in the window, this request's included if it was charged."""
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
