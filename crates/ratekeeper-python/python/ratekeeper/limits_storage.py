"""A storage for the `limits` library, and so for slowapi, on this engine.

    import ratekeeper.limits_storage
    from limits.storage import storage_from_string

    storage = storage_from_string("ratekeeper+redis://127.0.0.1:6379")

Every strategy works: fixed window, moving window (up to 10,000 entries) and sliding
window counter. The interface of `limits` is kept where it promises less than this
package does: `incr` counts also what is over the limit. Instants that it returns are
by the clock of this process, as that library expects them.

| URI | storage |
|---|---|
| `ratekeeper+memory://` | this process |
| `ratekeeper+memory+dir:///path` | this process, kept in a directory through restarts |
| `ratekeeper+redis://`, `+rediss://`, `+redis+unix://`, `+unix://`, `+redis+sentinel://`, `+rediss+sentinel://`, and the same with `valkey` | a server |
| `async+` before any of them | the same for asyncio |
"""

from __future__ import annotations

import asyncio
import functools
import math
import operator
import time
from typing import Any

from limits.aio import storage as aio
from limits.aio.storage.base import SlidingWindowCounterSupport as AsyncSlidingWindowCounterSupport
from limits.errors import ConfigurationError
from limits.storage import MovingWindowSupport, SlidingWindowCounterSupport, Storage

from ._limits_reset import client_of, delete_all
from ._native import STORE_SCHEMES, Charge, Decision, Quota, Store, StoreError
from ._limits_memory import Known, Seen, Terms
from .keys import bounded

__all__ = ["AsyncRatekeeperStorage", "RatekeeperStorage"]

_SCHEMES = [f"ratekeeper+{scheme}" for scheme in STORE_SCHEMES]
_ASYNC_SCHEMES = [f"async+{scheme}" for scheme in _SCHEMES]

# The names of the three kinds of counters; all quotas of a name share a key on the server.
_FIXED, _MOVING, _SLIDING = "limits-fixed", "limits-moving", "limits-sliding"
# What counts unconditionally has no limit; this is the highest there is.
_ENDLESS = 1_000_000_000
_YEAR = 366 * 86_400
# An exact log of more would cost too much, in memory and in time.
_ENTRIES_MAX = 10_000
# Floats of instants tell no less than this apart. Who comes back when told to must not be early.
_ROUNDING = 0.000_001
# `limits` raises when a server does not answer, so there is time to wait for it.
_DEADLINE = 1.0


@functools.lru_cache(maxsize=1_024)
def _quota(algorithm: str, limit: int, expiry: int) -> Quota:
    if expiry > _YEAR:
        raise ValueError(f"expiry: got {expiry} seconds; expected at most {_YEAR}, which is a year")
    # Nobody counts as far as the highest limit, so a higher one is the same.
    return Quota(f"{min(limit, _ENDLESS)}/{expiry}s {algorithm}")


def _whole(amount: float) -> int:
    """An amount, rounded up to a whole number; what is none is no cost."""
    if isinstance(amount, float):
        if not math.isfinite(amount):
            raise ValueError(f"amount: got {amount}; expected a number")
        # Against whoever asks, so that no more passes than the limit says.
        return math.ceil(amount)
    try:
        return operator.index(amount)
    except TypeError:
        raise TypeError(f"amount: expected a number, got {type(amount).__name__}") from None


def _fixed(key: str, expiry: int = _YEAR, amount: int = 1) -> Charge:
    if amount < 0:
        raise ValueError(f"amount: got {amount}; expected 0 or more, counters here do not go back")
    # Whoever only looks does not know the window, so all of them are one counter.
    quota = _quota("fixed_window", _ENDLESS, expiry)
    return Charge(_FIXED, quota, bounded(key), cost=amount, any_window=True)


def _moving(key: str, limit: int, expiry: int, amount: int = 1) -> Charge:
    if limit > _ENTRIES_MAX:
        raise ValueError(
            f"moving-window: got a limit of {limit}; expected at most {_ENTRIES_MAX}; "
            "use sliding-window-counter above that"
        )
    return Charge(_MOVING, _quota("sliding_log", limit, expiry), bounded(key), cost=amount)


def _sliding(key: str, limit: int, expiry: int, amount: int = 1) -> Charge:
    return Charge(_SLIDING, _quota("sliding_window", limit, expiry), bounded(key), cost=amount)


def _every_counter(key: str) -> list[Charge]:
    return [_fixed(key), _moving(key, 1, 1), _sliding(key, 1, 1)]


def _used(decision: Decision) -> int:
    (verdict,) = decision.verdicts
    return verdict.limit - verdict.remaining


def _counted(decision: Decision, amount: int) -> int:
    # Beyond the highest limit there is, what is over it is told but no longer kept.
    return _used(decision) if decision.allowed else _used(decision) + amount


def _ends_in(decision: Decision) -> float:
    (verdict,) = decision.verdicts
    return verdict.reset_after


def _next_room(key: str, expiry: int, used: int) -> Charge:
    # With so many counted, a limit of as many is exhausted: when it has room, one more is free under any limit.
    return _sliding(key, used, expiry)


def _windows(used: int, room_in: float, expiry: int) -> tuple[int, float, int, float]:
    """The count as `limits` wants it: what two windows hold, and for how long.

    It takes the present window to live twice as long as `expiry`, and to have room again when the second half
    begins. So all that was counted is told as the present one's, with the time that is left until a unit is free.
    """
    if used == 0:
        return 0, 0.0, 0, float(expiry)
    # A full window more would be none at all.
    return 0, 0.0, used, min(expiry + room_in + _ROUNDING, math.nextafter(2.0 * expiry, 0.0))


class _Connected:
    """What both storages are made of."""

    _store: Store
    _url: str
    _prefix: str

    def _connect(self, uri: str, key_prefix: str, options: dict[str, Any]) -> None:
        self._uri, self._key_prefix = uri, key_prefix
        self._url = _with_login_asked(uri.removeprefix("async+").removeprefix("ratekeeper+"))
        self._seen: Seen | None = None
        self._prefix = f"{key_prefix}:" if key_prefix else ""
        self._options = options
        try:
            self._store = self._open()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{uri.split('@')[-1]}: {error}") from error
        if self._store.kind == "memory":
            self._seen = Seen()

    def _open(self) -> Store:
        redis = {"prefix": self._prefix, "deadline": _DEADLINE, **self._options}
        return Store.open(self._url, memory=self._options, redis=redis)

    def _note(self, kind: str, key: str, limit: int, expiry: int) -> None:
        if self._seen is not None:
            self._seen.note(kind, key, limit, expiry)

    def _reset(self) -> int | None:
        """Forgets everything; says how many counters there were."""
        if self._seen is not None:
            known = [_charge_of(*one, 0) for one in self._seen.take()]
            count = sum(_used(self._store.peek(charge)) > 0 for charge in known)
            if self._store.kept:
                # The directory is this store's. What only an earlier process counted stays there.
                for charge in known:
                    self._store.reset(charge)
            else:
                self._store = self._open()
            return count
        with client_of(self._url, self._options.get("certificate_authority")) as client:
            return delete_all(client, f"{self._prefix}rk:", ":limits-")

    def _counters(self) -> list[tuple[Known, Terms, int]]:
        """What is counted in memory alone; on a server and in a directory it stays there."""
        known = self._seen.all() if self._seen is not None and not self._store.kept else []
        counted = [(name, terms, _used(self._store.peek(_charge_of(name, terms, 0)))) for name, terms in known]
        return [one for one in counted if one[2] > 0]

    def __reduce__(self) -> tuple[Any, ...]:
        made = (type(self), self._uri, getattr(self, "_wraps", False), self._key_prefix, self._options, self._counters())
        return _restored, made

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        return StoreError


def _with_login_asked(url: str) -> str:
    """`redis+unix://:password@/path`, as `limits` writes it, has its login where the engine reads it."""
    scheme, _, rest = url.partition("://")
    login, at, path = rest.partition("@")
    if not at or not scheme.endswith("unix") or "/" in login:
        return url
    user, _, password = login.partition(":")
    asked = "&".join(f"{name}={value}" for name, value in (("user", user), ("pass", password)) if value)
    return f"{scheme}://{path}{'&' if '?' in path else '?'}{asked}" if asked else f"{scheme}://{path}"


def _charge_of(name: Known, terms: Terms, amount: int) -> Charge:
    kind, key = name
    if kind == _FIXED:
        return _fixed(key, terms[1], amount)
    return (_moving if kind == _MOVING else _sliding)(key, *terms, amount)


def _restored(
    kind: type[_Connected], uri: str, wraps: bool, key_prefix: str, options: dict[str, Any],
    counters: list[tuple[Known, Terms, int]],
) -> _Connected:
    """A storage that was pickled. What was counted in memory counts there, too; its windows begin anew."""
    make: Any = kind
    storage: _Connected = make(uri, wraps, key_prefix, **options)
    for name, terms, used in counters:
        storage._store.check(_charge_of(name, terms, used))
        storage._note(*name, *terms)
    return storage


class RatekeeperStorage(_Connected, Storage, MovingWindowSupport, SlidingWindowCounterSupport):
    """The storage for threads. Options are those of `Store.redis` and `Store.memory`."""

    STORAGE_SCHEME = _SCHEMES

    def __init__(
        self, uri: str = "ratekeeper+memory://", wrap_exceptions: bool = False, key_prefix: str = "LIMITS",
        **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._wraps = wrap_exceptions
        self._connect(uri, key_prefix, options)

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        amount = _whole(amount)
        self._note(_FIXED, key, _ENDLESS, expiry)
        return _counted(self._store.check(_fixed(key, expiry, amount)), amount)

    def get(self, key: str) -> int:
        return _used(self._store.peek(_fixed(key)))

    def get_expiry(self, key: str) -> float:
        return time.time() + _ends_in(self._store.peek(_fixed(key)))

    def check(self) -> bool:
        try:
            self._store.ping()
        except StoreError:
            return False
        return True

    def reset(self) -> int | None:
        return self._reset()

    def clear(self, key: str) -> None:
        for charge in _every_counter(key):
            self._store.reset(charge)

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        amount = _whole(amount)
        self._note(_MOVING, key, limit, expiry)
        return amount <= limit and self._store.check(_moving(key, limit, expiry, amount)).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        used = _used(self._store.peek(_moving(key, limit, expiry))) if limit else 0
        if used == 0:
            return time.time(), 0
        # As many as would need the oldest entry's place: they can pass when its time is over.
        oldest = self._store.peek(_moving(key, limit, expiry, limit - used + 1))
        return time.time() + oldest.retry_after + _ROUNDING - expiry, used

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        amount = _whole(amount)
        self._note(_SLIDING, key, limit, expiry)
        return amount <= limit and self._store.check(_sliding(key, limit, expiry, amount)).allowed

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        used = _used(self._store.peek(_sliding(key, _ENDLESS, expiry)))
        room_in = self._store.peek(_next_room(key, expiry, used)).retry_after if used else 0.0
        return _windows(used, room_in, expiry)

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        self._store.reset(_sliding(key, 1, expiry))


class AsyncRatekeeperStorage(
    _Connected, aio.Storage, aio.MovingWindowSupport, AsyncSlidingWindowCounterSupport
):
    """The storage for asyncio: the same counters."""

    STORAGE_SCHEME = _ASYNC_SCHEMES

    def __init__(
        self, uri: str = "async+ratekeeper+memory://", wrap_exceptions: bool = False,
        key_prefix: str = "LIMITS", **options: Any,
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._wraps = wrap_exceptions
        self._connect(uri, key_prefix, options)

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        amount = _whole(amount)
        self._note(_FIXED, key, _ENDLESS, expiry)
        return _counted(await self._store.acheck(_fixed(key, expiry, amount)), amount)

    async def get(self, key: str) -> int:
        return _used(await self._store.apeek(_fixed(key)))

    async def get_expiry(self, key: str) -> float:
        return time.time() + _ends_in(await self._store.apeek(_fixed(key)))

    async def check(self) -> bool:
        try:
            await self._store.aping()
        except StoreError:
            return False
        return True

    async def reset(self) -> int | None:
        return await asyncio.to_thread(self._reset)

    async def clear(self, key: str) -> None:
        for charge in _every_counter(key):
            await self._store.areset(charge)

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        amount = _whole(amount)
        self._note(_MOVING, key, limit, expiry)
        return amount <= limit and (await self._store.acheck(_moving(key, limit, expiry, amount))).allowed

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        used = _used(await self._store.apeek(_moving(key, limit, expiry))) if limit else 0
        if used == 0:
            return time.time(), 0
        oldest = await self._store.apeek(_moving(key, limit, expiry, limit - used + 1))
        return time.time() + oldest.retry_after + _ROUNDING - expiry, used

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        amount = _whole(amount)
        self._note(_SLIDING, key, limit, expiry)
        return amount <= limit and (await self._store.acheck(_sliding(key, limit, expiry, amount))).allowed

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        used = _used(await self._store.apeek(_sliding(key, _ENDLESS, expiry)))
        room_in = (await self._store.apeek(_next_room(key, expiry, used))).retry_after if used else 0.0
        return _windows(used, room_in, expiry)

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await self._store.areset(_sliding(key, 1, expiry))
