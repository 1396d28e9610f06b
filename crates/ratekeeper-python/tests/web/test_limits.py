"""The storage for `limits`: every strategy, sync and async, on every kind of store."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import DEADLINE, Backend
from limits import RateLimitItem, RateLimitItemPerMinute, errors, parse
from limits.aio.strategies import STRATEGIES as ASYNC_STRATEGIES
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES as SYNC_STRATEGIES
from servers import RedisServer

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)
from ratekeeper import ManualClock, StoreError

Either = Callable[..., Any]
STRATEGIES: dict[str, Any] = dict(SYNC_STRATEGIES)
AIO_STRATEGIES: dict[str, Any] = dict(ASYNC_STRATEGIES)


class Blocking:
    """Makes calls of async objects like those of sync ones, so that both have the same tests."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            result = value(*arguments, **named)
            return self._loop.run_until_complete(result) if inspect.isawaitable(result) else result

        return call


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> str:
    """Either interface of `limits`."""
    return str(request.param)


@pytest.fixture
def blocking() -> Any:
    """Wraps what is async."""
    loop = asyncio.new_event_loop()
    yield lambda inner: Blocking(inner, loop)
    loop.close()


@pytest.fixture
def storage_of(backend: Backend, flavour: str) -> Either:
    """Makes a storage by its URI."""

    def make(**options: Any) -> Any:
        uri = "ratekeeper+memory://"
        if backend.server is not None:
            # Servers of either kind go by either name.
            scheme = "valkey" if backend.name.startswith("valkey") else "redis"
            uri = f"ratekeeper+{scheme}://127.0.0.1:{backend.server.port}"
            options = {"deadline": DEADLINE, **options}
        return storage_from_string(f"async+{uri}" if flavour == "async" else uri, **options)

    return make


@pytest.fixture
def limiter_of(storage_of: Either, flavour: str, blocking: Either) -> Either:
    """Makes a limiter with one of the strategies of `limits`."""

    def make(strategy: str, **options: Any) -> Any:
        storage = storage_of(**options)
        if flavour == "async":
            return blocking(AIO_STRATEGIES[strategy](storage))
        return STRATEGIES[strategy](storage)

    return make


ITEM = parse("3/10 second")


def hits(limiter: Any, *costs: int, item: RateLimitItem = ITEM, who: str = "ann") -> list[bool]:
    return [limiter.hit(item, who, cost=cost) for cost in costs]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_limits(limiter_of: Either, strategy: str) -> None:
    limiter = limiter_of(strategy)
    before = time.time()
    assert limiter.test(ITEM, "ann")
    assert limiter.get_window_stats(ITEM, "ann").remaining == 3
    assert hits(limiter, 1, 1) == [True, True]
    stats = limiter.get_window_stats(ITEM, "ann")
    assert stats.remaining == 1
    assert before + 9 < stats.reset_time < time.time() + 10.5
    assert (limiter.test(ITEM, "ann"), limiter.test(ITEM, "ann", cost=2)) == (True, False)
    assert hits(limiter, 1, 1) == [True, False]
    assert not limiter.test(ITEM, "ann")
    assert limiter.get_window_stats(ITEM, "ann").remaining == 0
    assert hits(limiter, 1, who="bob") == [True]
    limiter.clear(ITEM, "ann")
    assert limiter.get_window_stats(ITEM, "ann").remaining == 3
    assert hits(limiter, 3, 1) == [True, False]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_windows_end(limiter_of: Either, clock: ManualClock, strategy: str) -> None:
    limiter = limiter_of(strategy, clock=clock)
    assert hits(limiter, 1) == [True]
    clock.advance(6)
    assert hits(limiter, 1, 1, 1) == [True, True, False]
    clock.advance(4.5)
    # The window of the first hit has ended; only the fixed one takes all others with it. Of the three in the window
    # before, 2.85 count still, which are two.
    room = {"fixed-window": 3, "moving-window": 1, "sliding-window-counter": 1}[strategy]
    assert limiter.get_window_stats(ITEM, "ann").remaining == room
    assert hits(limiter, *[1] * (room + 1)) == [True] * room + [False]
    clock.advance(20)
    assert limiter.get_window_stats(ITEM, "ann").remaining == 3


def test_a_fixed_window_counts_unconditionally(
    limiter_of: Either, storage_of: Either, flavour: str, blocking: Either
) -> None:
    limiter = limiter_of("fixed-window")
    assert hits(limiter, 2, 2, 1) == [True, False, False], "what is over the limit is counted too"
    storage = blocking(storage_of()) if flavour == "async" else storage_of()
    assert storage.incr("key", 60) == 1
    assert storage.incr("key", 60, 5) == 6
    assert storage.get("key") == 6
    assert storage.incr("key", 60, amount=999_999_990) == 999_999_996
    assert storage.incr("key", 60, amount=10) == 1_000_000_006, "more than the engine counts"
    assert 58 < storage.get_expiry("key") - time.time() < 60.5
    storage.clear("key")
    assert storage.get("key") == 0
    assert abs(storage.get_expiry("key") - time.time()) < 1


def test_a_moving_window_starts_with_its_oldest_entry(
    storage_of: Either, clock: ManualClock, flavour: str, blocking: Either
) -> None:
    storage = storage_of(clock=clock)
    storage = blocking(storage) if flavour == "async" else storage
    assert storage.get_moving_window("key", 5, 60)[1] == 0
    for _ in range(3):
        assert storage.acquire_entry("key", 5, 60)
        clock.advance(7)
    start, count = storage.get_moving_window("key", 5, 60)
    assert count == 3
    assert math.isclose(time.time() - start, 21, abs_tol=2)
    assert not storage.acquire_entry("key", 5, 60, 3)
    assert not storage.acquire_entry("key", 5, 60, 6), "more than there ever is"
    assert storage.acquire_entry("key", 5, 60, 2)


def test_a_sliding_window_fades(storage_of: Either, clock: ManualClock, flavour: str, blocking: Either) -> None:
    storage = storage_of(clock=clock)
    storage = blocking(storage) if flavour == "async" else storage
    assert storage.acquire_sliding_window_entry("key", 10, 60, 8)

    def weighted() -> float:
        previous, previous_ttl, current, current_ttl = storage.get_sliding_window("key", 60)
        assert 0 <= previous_ttl <= 60
        assert 60 <= current_ttl <= 120
        return float(previous * previous_ttl / 60 + current)

    assert weighted() == 8
    clock.advance(60)
    assert math.floor(weighted()) == 8
    clock.advance(30)
    assert math.floor(weighted()) == 4
    assert storage.acquire_sliding_window_entry("key", 10, 60, 6)
    assert not storage.acquire_sliding_window_entry("key", 10, 60)
    storage.clear_sliding_window("key", 60)
    assert weighted() == 0


def test_long_windows_and_long_keys(limiter_of: Either) -> None:
    limiter = limiter_of("fixed-window")
    for text in ("1/year", "1/month", "1/day"):
        assert hits(limiter, 1, 1, item=parse(text)) == [True, False], text
    assert hits(limiter, 1, 1, item=parse("1/hour"), who="x" * 5000) == [True, False]
    assert hits(limiter, 1, item=parse("1/hour"), who="x" * 5001) == [True]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_limit_of_nothing_denies(limiter_of: Either, strategy: str) -> None:
    limiter, nothing = limiter_of(strategy), RateLimitItemPerMinute(0)
    assert hits(limiter, 1, 1, item=nothing) == [False, False]
    assert not limiter.test(nothing, "ann")
    limiter.get_window_stats(nothing, "ann")


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_what_cannot_be_counted_is_told(limiter_of: Either, strategy: str) -> None:
    limiter = limiter_of(strategy)
    with pytest.raises(ValueError, match="^expiry: got 62208000 seconds; expected at most 31622400, which is a year$"):
        hits(limiter, 1, item=parse("1/2 years"))
    if strategy != "moving-window":
        assert hits(limiter, 1, item=parse("2000000000/day")) == [True], "more than anybody counts"


def test_counters_do_not_go_back(storage_of: Either, flavour: str, blocking: Either) -> None:
    storage = blocking(storage_of()) if flavour == "async" else storage_of()
    assert (storage.incr("key", 60, 3), storage.incr("key", 60, 0)) == (3, 3)
    with pytest.raises(ValueError, match="^amount: got -2; expected 0 or more, counters here do not go back$"):
        storage.incr("key", 60, -2)


def test_moving_windows_are_bounded(limiter_of: Either) -> None:
    limiter = limiter_of("moving-window")
    assert hits(limiter, 1, item=parse("10000/hour")) == [True]
    with pytest.raises(ValueError, match="moving-window: got a limit of 10001; expected at most 10000; use sliding"):
        hits(limiter, 1, item=parse("10001/hour"))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_hundred_threads_on_a_limit_of_five(backend: Backend, strategy: str) -> None:
    uri = "ratekeeper+memory://" if backend.server is None else f"ratekeeper+{backend.server.url}"
    options = {} if backend.server is None else {"deadline": DEADLINE}
    limiter = STRATEGIES[strategy](storage_from_string(uri, **options))
    item = parse("5/hour")
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert sum(pool.map(lambda _: limiter.hit(item, "ann"), range(500))) == 5


@pytest.mark.parametrize("strategy", sorted(AIO_STRATEGIES))
async def test_a_thousand_tasks_on_a_limit_of_five(backend: Backend, strategy: str) -> None:
    uri = "memory://" if backend.server is None else backend.server.url
    options = {} if backend.server is None else {"deadline": DEADLINE}
    limiter = AIO_STRATEGIES[strategy](storage_from_string(f"async+ratekeeper+{uri}", **options))
    item = parse("5/hour")
    assert sum(await asyncio.gather(*(limiter.hit(item, "ann") for _ in range(1000)))) == 5


def test_reset_forgets_everything_of_this_prefix(
    storage_of: Either, backend: Backend, flavour: str, blocking: Either
) -> None:
    storage, other = storage_of(), storage_of(key_prefix="OTHER[1]*")
    if flavour == "async":
        storage, other = blocking(storage), blocking(other)
    for each in (storage, other):
        assert each.check()
        each.incr("key", 60)
        each.acquire_entry("key", 5, 60)
        each.acquire_sliding_window_entry("key", 5, 60)
    count = other.reset()
    assert count == 3
    assert (other.get("key"), other.get_moving_window("key", 5, 60)[1]) == (0, 0)
    assert other.get_sliding_window("key", 60)[:3] == (0, 0, 0)
    assert storage.get("key") == 1


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("incr", ("key", 60)),
    ("get", ("key",)),
    ("get_expiry", ("key",)),
    ("clear", ("key",)),
    ("acquire_entry", ("key", 1, 60)),
    ("get_moving_window", ("key", 1, 60)),
    ("acquire_sliding_window_entry", ("key", 1, 60)),
    ("get_sliding_window", ("key", 60)),
]


def test_outages_are_errors_as_in_limits(own_server: RedisServer, flavour: str, blocking: Either) -> None:
    before = "async+" if flavour == "async" else ""
    made = [storage_from_string(f"{before}ratekeeper+{own_server.url}", wrap_exceptions=wrap) for wrap in (False, True)]
    plain, wrapping = [blocking(storage) if flavour == "async" else storage for storage in made]
    assert plain.check()
    own_server.kill()
    assert not plain.check()
    for storage, error in ((plain, StoreError), (wrapping, errors.StorageError)):
        for name, arguments in CALLS:
            with pytest.raises(error):
                getattr(storage, name)(*arguments)


@pytest.mark.parametrize(
    ("uri", "options", "problem"),
    [
        ("ratekeeper+mysql://x", {}, "unknown storage scheme"),
        ("ratekeeper+redis://user:secret@", {}, "redis"),
        ("ratekeeper+redis://127.0.0.1", {"deadlin": 1}, "deadlin"),
        ("ratekeeper+memory://", {"max_keys": 0}, "max_keys"),
    ],
)
def test_wrong_uris_are_told(uri: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=problem) as caught:
        storage_from_string(uri, **options)
    assert "secret" not in str(caught.value)
