"""Slots for outgoing calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType

from .._forks import renew_in_children
from .._late import sleep
from .._native import Decision, Limiter, Quota, RatekeeperError, Rule, Store
from .._rates import Quotas, quotas_said
from ._told import pause_told

# Hosts whose pauses are remembered; of more, the first to end are forgotten.
HOSTS_MAX = 10_000


class OutgoingLimitExceeded(RatekeeperError):
    """A call would have to wait longer than it may, or too many are waiting.

    `retry_after`: seconds until it is worth trying again. `decision`: the denial, if it was our limit that denied.
    """

    def __init__(self, host: str, retry_after: float, why: str, decision: Decision | None = None) -> None:
        super().__init__(f"{host}: {why}")
        self.host, self.retry_after, self.why, self.decision = host, retry_after, why, decision

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.host, self.retry_after, self.why, self.decision)


class OutgoingLimiter:
    """At most so many calls to each host.

    `limits`: a rate for each host, such as `"10/s"`, `"100/minute;1000/hour"` or a `Quota`; `"*"` is each other one. A host without
    a rate only waits for what it says itself. `"5/30s concurrency"` is five at once. `patience`: how many seconds a call
    may wait; `waiting_max`: how many may wait at once in this process, the next one fails.
    """

    def __init__(
        self,
        store: Store | None,
        limits: Mapping[str, str | Quota],
        *,
        name: str = "outgoing",
        patience: float = 60.0,
        waiting_max: int = 1_000,
    ) -> None:
        if patience < 0:
            raise ValueError(f"patience: got {patience}; expected 0 or more seconds")
        if waiting_max < 0:
            raise ValueError(f"waiting_max: got {waiting_max}; expected 0 or more")
        self.patience, self.waiting_max = patience, waiting_max
        store = Store.memory() if store is None else store
        self._limiters = {
            host.lower(): Limiter(store, Rule(name, _quotas(host, said))) for host, said in limits.items()
        }
        self._pauses: dict[str, float] = {}
        self._waiting = 0
        self._lock = threading.Lock()
        renew_in_children(self)

    def after_fork(self) -> None:
        """No thread that waits, or holds the lock, is in the child."""
        self._lock, self._waiting = threading.Lock(), 0

    @property
    def waiting(self) -> int:
        """How many calls wait now."""
        return self._waiting

    def slot(self, host: str, *, cost: int = 1, patience: float | None = None) -> Slot:
        """`async with`, or `with`: waits for its turn. Raises OutgoingLimitExceeded if that would take too long."""
        return Slot(self, host.lower(), cost, self.patience if patience is None else patience)

    def observe(self, host: str, status: int, headers: Mapping[str, str]) -> None:
        """What a response of a host says of its limits: calls to it wait then."""
        pause = pause_told(status, headers)
        if pause <= 0:
            return
        with self._lock:
            if len(self._pauses) >= HOSTS_MAX:
                for ended in sorted(self._pauses, key=self._pauses.__getitem__)[: HOSTS_MAX // 10]:
                    del self._pauses[ended]
            host = host.lower()
            self._pauses[host] = max(self._pauses.get(host, 0.0), time.monotonic() + pause)

    def paused(self, host: str) -> float:
        """Seconds for which a host wants no more calls."""
        until = self._pauses.get(host.lower())
        return 0.0 if until is None else max(0.0, until - time.monotonic())

    def limiter_of(self, host: str) -> Limiter | None:
        """The limiter of a host, if it has one."""
        return self._limiters.get(host) or self._limiters.get("*")

    def begin_waiting(self, host: str) -> None:
        """Counts one that waits, or raises OutgoingLimitExceeded."""
        with self._lock:
            if self._waiting >= self.waiting_max:
                why = f"{self._waiting} calls are waiting, which is as many as may"
                raise OutgoingLimitExceeded(host, max(self.paused(host), 1.0), why)
            self._waiting += 1

    def end_waiting(self) -> None:
        """One of them waits no longer."""
        with self._lock:
            # A child does not count what began to wait in its parent.
            self._waiting = max(0, self._waiting - 1)


def _quotas(host: str, said: str | Quota) -> Quota | Mapping[str, Quota]:
    if isinstance(said, Quota):
        return said
    try:
        found: Quota | Quotas = quotas_said(said, 1, "sliding_window")
    except ValueError:
        try:
            found = Quota(said)
        except ValueError as error:
            raise ValueError(f"limits[{host!r}]: {error}") from None
    return found if isinstance(found, Quota) else dict(found)


class Slot:
    """The turn of one call."""

    def __init__(self, limiter: OutgoingLimiter, host: str, cost: int, patience: float) -> None:
        self._limiter, self._host, self._cost, self._patience = limiter, host, cost, patience
        self.decision: Decision | None = None

    def observe(self, status: int, headers: Mapping[str, str]) -> None:
        """What the response says of the other side's limits."""
        self._limiter.observe(self._host, status, headers)

    async def __aenter__(self) -> Slot:
        self._limiter.begin_waiting(self._host)
        try:
            end = time.monotonic() + self._patience
            while (pause := self._pause(end)) > 0:
                await sleep(pause)
            limiter = self._limiter.limiter_of(self._host)
            if limiter is not None:
                patience = max(0.0, end - time.monotonic())
                self._take(await limiter.auntil_allowed(self._host, patience, cost=self._cost))
        finally:
            self._limiter.end_waiting()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        limiter = self._limiter.limiter_of(self._host)
        if limiter is not None and self.decision is not None and self.decision.holds:
            await limiter.arefund(self.decision)

    def __enter__(self) -> Slot:
        self._limiter.begin_waiting(self._host)
        try:
            end = time.monotonic() + self._patience
            while (pause := self._pause(end)) > 0:
                time.sleep(pause)
            limiter = self._limiter.limiter_of(self._host)
            if limiter is not None:
                patience = max(0.0, end - time.monotonic())
                self._take(limiter.until_allowed(self._host, patience, cost=self._cost))
        finally:
            self._limiter.end_waiting()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        limiter = self._limiter.limiter_of(self._host)
        if limiter is not None and self.decision is not None and self.decision.holds:
            limiter.refund(self.decision)

    def _pause(self, end: float) -> float:
        """How long to wait for the other side; raises if that is longer than there is."""
        pause = self._limiter.paused(self._host)
        if pause > max(0.0, end - time.monotonic()):
            why = f"it asked for {pause:.1f} s without calls, and this one may wait {self._patience:g} s"
            raise OutgoingLimitExceeded(self._host, pause, why)
        return pause

    def _take(self, decision: Decision) -> None:
        if not decision.allowed:
            why = f"no room within {self._patience:g} s: {decision.explain()}"
            raise OutgoingLimitExceeded(self._host, decision.retry_after, why, decision)
        self.decision = decision
