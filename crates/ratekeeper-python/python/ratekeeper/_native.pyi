"""The engine, in Rust.

Every call that may need I/O has two forms: `check` blocks (and lets other threads
run meanwhile), `acheck` is awaited. In memory both answer at once: awaiting takes no
turn of the event loop. Times are seconds, as `float` where they are answers.

Wrong arguments raise `ValueError` with the argument and what would be right. A denial
is a `Decision`, never an exception.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, final

__all__ = [
    "Addresses",
    "Charge",
    "Decision",
    "Denial",
    "EXPOSE_HEADERS",
    "Health",
    "HttpOptions",
    "Limiter",
    "ManualClock",
    "Needs",
    "Outages",
    "Override",
    "Policies",
    "PolicyError",
    "PolicyLimiter",
    "PolicyWatch",
    "Quota",
    "RatekeeperError",
    "Request",
    "Rule",
    "STORE_SCHEMES",
    "ServiceLimiter",
    "Store",
    "StoreError",
    "Switch",
    "Tally",
    "Verdict",
    "__version__",
    "_decision_of",
    "_denial_of",
    "_verdict_of",
    "mode_from_environment",
    "server_arguments",
]

__version__: str

_Mode = Literal["on", "monitor", "off"]
_Outage = Literal["allow", "deny", "local"]
_Settled = Literal["done", "already", "lapsed", "unknown"]
_Scalar = str | int | float | bool

class RatekeeperError(Exception):
    """What this package raises, wrong arguments aside: those are a ValueError."""

class StoreError(RatekeeperError):
    """A store could not answer. `Limiter.check` never raises it: rules decide then."""

    kind: Literal["capacity", "timeout", "overloaded", "unavailable", "read_only", "unreadable", "permission", "protocol"]
    """Which failure it is. After `timeout` the call may have been charged."""
    is_transient: bool
    """Whether the same call may succeed later."""

class PolicyError(RatekeeperError, ValueError):
    """Policies that cannot be used or had. The text names file, line and field of every mistake."""

@final
class Addresses:
    """How the address of a client is found behind proxies.

    `trusted`: the proxies whose word is taken, addresses or networks (`"10.0.0.0/8"`). `header`: the one field that they
    write, "x-forwarded-for" or "forwarded".
    """

    def __new__(
        cls, trusted: Sequence[str], *, header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    ) -> Addresses: ...
    def client(self, peer: str, headers: Iterable[tuple[str | bytes, str | bytes]]) -> str:
        """The address of the client: `peer`, or the first address in the field, from the right, that is no trusted proxy.

        `headers`: pairs, in the order they came.
        """

@final
class Quota:
    """How much in how long: `Quota("10/s burst 20")`, `Quota("100/60s fixed_window")`.

    Algorithms: token_bucket (the default), fixed_window, sliding_window, sliding_log,
    leaky_bucket, concurrency. Windows by the clock: `50000 per calendar month`,
    `100/15min fixed_window aligned`.
    """

    def __new__(cls, text: str) -> Quota: ...
    @staticmethod
    def fixed_window(max_requests: int, expiry: float = 1.0) -> Quota:
        """A window that begins with the first request, as in Application Kit.

        Values below 1 raise ValueError: "max_requests must be at least 1" and
        "expiry must be at least 1 second" (windows below a second: by text).
        """

    @property
    def algorithm(self) -> str: ...
    @property
    def limit(self) -> int: ...
    @property
    def capacity(self) -> int:
        """The most units there can be at once: the burst of a bucket, else the limit."""

    @property
    def window(self) -> float:
        """Seconds; of a calendar window, the longest."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class Rule:
    """Whose quota it is, how much, and what happens when the store is away.

    `quotas`: a text, a `Quota`, tiers `{"rps": 20, "rpm": 1000}` (fixed windows, as in
    the SDK's documents) or `"{rps=20, rpm=1000}"`, or a mapping from names to texts or quotas.

    `key`: from a request to the key it counts under; None means that the rule does not
    apply. Without a function, whoever asks says the key. `everyone=True` counts all
    requests together.

    `mode`: "monitor" counts and tells, never denies. `on_outage`: what an outage of the
    store means: "allow", "deny", or "local", this process's share in its own memory.
    `per_request`: one unit, whatever a check costs.
    """

    def __new__(
        cls,
        name: str,
        quotas: str | Quota | Mapping[str, int | str | Quota],
        *,
        key: Callable[[Any], str | None] | None = None,
        everyone: bool = False,
        mode: Literal["on", "monitor"] = "on",
        on_outage: _Outage = "allow",
        per_request: bool = False,
    ) -> Rule: ...
    @property
    def name(self) -> str: ...
    @property
    def quotas(self) -> list[tuple[str, Quota]]:
        """Each with its full name: `name`, or `name.rpm` of several."""

@final
class Charge:
    """One quota, one key, one cost: what `Store.check` takes.

    `endpoint`, `organisation` and `project` say whose overrides apply. A fixed window whose
    key is `endpoint:organisation:project`, with numbers for the last two, is counted where
    Application Kit counts it. With `any_window`, all fixed windows of the name and key are one counter.
    """

    def __new__(
        cls,
        name: str,
        quota: str | Quota,
        key: str,
        *,
        cost: int = 1,
        shadow: bool = False,
        flat: bool = False,
        any_window: bool = False,
        emergency: Literal["off", "lift", "block"] = "off",
        endpoint: str | None = None,
        organisation: str | int | None = None,
        project: str | int | None = None,
    ) -> Charge: ...

    @property
    def name(self) -> str: ...
    @property
    def quota(self) -> Quota: ...
    @property
    def key(self) -> str: ...
    @property
    def cost(self) -> int: ...

@final
class Verdict:
    """What one quota said."""

    @property
    def name(self) -> str:
        """Its full name: of the rule, or `rule.rpm`, or `service/rule.rpm`."""

    @property
    def policy(self) -> str:
        """Its name as clients see it, without the service."""

    @property
    def quota(self) -> Quota:
        """The quota in force, overrides included."""

    @property
    def limit(self) -> int: ...
    @property
    def window(self) -> float: ...
    @property
    def remaining(self) -> int: ...
    @property
    def reset_after(self) -> float:
        """Seconds until it is full again if nobody else asks."""

    @property
    def retry_after(self) -> float:
        """Seconds until it would let the same charge pass: 0 now, inf never."""

    @property
    def cost(self) -> int: ...
    @property
    def level(self) -> Literal["default", "plan", "custom", "organisation", "project", "emergency"]:
        """Who set the limit."""

    @property
    def enforced(self) -> bool:
        """Whether it can deny; False in monitor mode."""

    @property
    def admitted(self) -> bool:
        """Whether it had room."""

    @property
    def denied(self) -> bool:
        """Whether it denied the check."""

    @property
    def charged(self) -> bool:
        """Whether something was charged that can be given back."""

    @property
    def receipt(self) -> tuple[int, int] | None:
        """Proof of the charge; opaque."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __copy__(self) -> Verdict: ...
    def __deepcopy__(self, _memo: Any) -> Verdict: ...

@final
class Decision:
    """The answer to a check. True if the request may go on.

    Copies are the decision itself, so they share the count of what was given back. A pickle says the same, and
    has nothing that could be given back: whoever gives back in another process charges under an id, or reserves.
    """

    @property
    def allowed(self) -> bool: ...
    @property
    def over_limit(self) -> bool:
        """Whether some quota had no room, also one that only watches (monitor mode)."""

    @property
    def origin(self) -> Literal["store", "repeat", "outage", "unlimited", "budget"]:
        """Who decided: `outage` is the rules' failure policy, `unlimited` says that no rule applied, `budget` that its
        conditions are too much work."""

    @property
    def reason(self) -> Literal["condition_budget"] | None:
        """Why it is denied, if neither a limit nor an outage denies it: `condition_budget` says that the
        conditions of its policy are more work than the budget of a request."""

    @property
    def at(self) -> float:
        """The instant of the decision by the store's clock, seconds since 1970."""

    @property
    def retry_after(self) -> float:
        """Seconds until the same check would pass: 0 if allowed, inf if never."""

    @property
    def proceed_after(self) -> float:
        """Seconds that an allowed request should hold back (leaky buckets)."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every quota that was asked, in the order of the rules."""

    @property
    def strictest(self) -> Verdict | None:
        """The one that matters most: the longest wait of those that denied, else the fullest."""

    @property
    def holds(self) -> bool:
        """Whether it holds places (concurrency) that are to be released when the request is over."""

    def explain(self) -> str:
        """One sentence for people."""

    def headers(self, options: HttpOptions | None = None) -> list[tuple[str, str]]:
        """The header fields of a response, names in lower case; on a denial with those of `denial`."""

    def denial(self, options: HttpOptions | None = None) -> Denial | None:
        """What to answer if it was denied."""

    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...
    def __copy__(self) -> Decision: ...
    def __deepcopy__(self, _memo: Any) -> Decision: ...

@final
class Denial:
    """Status, header fields and body of the answer to a denied request."""

    @property
    def status(self) -> int:
        """429, or 503 if limits could not be checked and the rule denies then."""

    @property
    def retry_after(self) -> int | None:
        """Whole seconds, rounded up; None if the request can never pass."""

    @property
    def content_type(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def headers(self) -> list[tuple[str, str]]:
        """content-type, cache-control, retry-after."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, tuple[Any]]: ...

@final
class HttpOptions:
    """What clients are told.

    `standard`: RateLimit-Policy and RateLimit as draft 11 has them, as "next" has them, or None.
    `legacy`: "RateLimit" or "X-RateLimit" sends -Limit, -Remaining and -Reset as well;
    `legacy_reset`: what -Reset counts. `body`: a problem document, or
    `{"detail": "Rate limit exceeded. Try again later."}`. `retry_after_spread`: percent by which
    each Retry-After is lengthened at random, so that the denied do not return together.
    """

    def __new__(
        cls,
        *,
        standard: Literal["11", "next"] | None = "11",
        legacy: Literal["RateLimit", "X-RateLimit"] | None = None,
        legacy_reset: Literal["delta", "epoch"] = "delta",
        body: Literal["problem", "detail"] = "problem",
        outage_retry_after: float = 1.0,
        retry_after_spread: int = 0,
    ) -> HttpOptions: ...
    @property
    def content_type(self) -> str: ...
    @property
    def field_names(self) -> list[str]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

@final
class Tally:
    """The policies that one request met, over any number of decisions.

    Every policy is told once, in the order they were met; of several keys under one name and
    one quota, the worst off. Threads may share one.
    """

    def __new__(cls) -> Tally: ...
    def add(self, decision: Decision, *, partition: str | bytes | None = None) -> None:
        """`partition` is told to clients as `pk`; at most 64 bytes, longer ones are left out."""

    def headers(self, options: HttpOptions | None = None) -> list[tuple[str, str]]:
        """RateLimit-Policy, RateLimit and the legacy fields, names in lower case."""

    def onto(
        self, headers: Iterable[tuple[bytes, bytes]], options: HttpOptions | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Header fields as ASGI has them, with those of this tally; they replace what is there of their names."""

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""

@final
class Override:
    """Another limit for a project or an organisation."""

    @property
    def max_requests(self) -> int: ...
    @property
    def expiry(self) -> int | None:
        """The window in whole seconds, rounded up; None: the quota's own."""

    @property
    def window(self) -> float | None: ...
    @property
    def expires_at(self) -> float | None:
        """When it ends, seconds since 1970."""

    @property
    def reason(self) -> str: ...
    @property
    def author(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Switch:
    """What an operator has set for a rule, a service (`service/*`) or all rules (`*`)."""

    @property
    def mode(self) -> _Mode | None: ...
    @property
    def enforce_percent(self) -> int | None: ...
    @property
    def emergency(self) -> Literal["off", "lift", "block"]: ...
    @property
    def until(self) -> float | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Health:
    """How a store is doing; counts are since it was made (in this process)."""

    @property
    def breaker(self) -> Literal["closed", "half_open", "open"]: ...
    @property
    def breaker_opened(self) -> int: ...
    @property
    def timeouts(self) -> int: ...
    @property
    def overloads(self) -> int: ...
    @property
    def full(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def evicted(self) -> int: ...
    @property
    def evicted_exhausted(self) -> int: ...
    @property
    def refunds_refused(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def failures_by_kind(self) -> dict[str, int]: ...
    @property
    def failing(self) -> list[str]: ...
    @property
    def batches(self) -> int: ...
    @property
    def batched(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def data(self) -> dict[str, float] | None:
        """The directory of a store in memory, if it has one: `bytes` of its file, `age` in seconds of what was saved last,
        `failures`, `is_failing`, `was_damaged` at the start, and `unreadable` records then.
        """
    @property
    def spanning(self) -> int: ...
    @property
    def spanning_refunds(self) -> int: ...
    @property
    def spanning_refunds_failed(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def nodes_up(self) -> int: ...

@final
class ManualClock:
    """A clock for tests: it stands still until it is moved."""

    def __new__(cls, seconds: float = 1_700_000_000.0) -> ManualClock: ...
    def advance(self, seconds: float) -> None: ...
    def set_micros(self, micros: int) -> None: ...
    @property
    def micros(self) -> int: ...

@final
class Store:
    """Where counters live. Made by `Store.memory`, `Store.redis` or `Store.open`.

    After a fork the child connects anew. What is in memory is copied by the fork, and
    counts for each process alone from then on.
    """

    @staticmethod
    def memory(*, max_keys: int = 1_000_000, clock: ManualClock | None = None) -> Store:
        """Counters of this process, at most `max_keys` of them."""

    @staticmethod
    def redis(
        url: str,
        *,
        prefix: str = "",
        deadline: float = 0.025,
        total: float | None = None,
        password_file: str | PathLike[str] | None = None,
        connections: int = 1,
        queue_max: int = 10_000,
        replicas: int = 0,
        breaker_consecutive: int = 5,
        breaker_failure_percent: int = 50,
        breaker_calls_min: int = 20,
        breaker_period: float = 5.0,
        breaker_probe_after: float = 0.05,
        breaker_probe_after_max: float = 2.0,
        certificate_authority: str | bytes | None = None,
        clock: ManualClock | None = None,
    ) -> Store:
        """Counters on Redis (6.2 or later) or Valkey: redis://, rediss://, redis+unix://,
        and valkey://, valkeys://, valkey+unix://, which mean the same; or
        redis+sentinel://host:26379,host:26379/service, where sentinels say which server it is; or
        redis+cluster://host:6379,host:6379, nodes of a cluster; or
        redis://host,redis://other, several servers that share the counters.

        Keys are those of Application Kit where that has them, behind `prefix`. A server
        that is silent for longer than `deadline` is an outage; no call takes longer than
        `total`, which is four deadlines unless given. A server that keeps failing is
        not asked again until a probe reaches it (the breaker). A server that is down
        is no error here. `password_file` is read again for every new connection. What is
        admitted is told once `replicas` of the server have it (`WAIT`); see docs/redis.md.
        """

    @staticmethod
    def open(
        url: str, *, memory: dict[str, Any] | None = None, redis: dict[str, Any] | None = None
    ) -> Store:
        """`memory`, `memory://`, a URL of `Store.redis`, or `memory+dir://` and the path of a directory: then what is in
        memory is kept there, through restarts and crashes, for one process at a time. `memory` and `redis` are options of
        `Store.memory` and `Store.redis`: those hold that are for what the URL means.
        """

    def flush(self) -> None:
        """Saves in the directory of the store what changed within the last second. The end of the program does it, too.
        Raises StoreError if the directory cannot be written.
        """

    @property
    def kept(self) -> bool:
        """Whether what is in memory is kept in a directory."""

    @property
    def kind(self) -> Literal["memory", "redis"]: ...
    @property
    def now(self) -> float: ...
    @property
    def health(self) -> Health: ...
    # Each is a name, what it means, "counter" or "gauge", and values with their labels.
    def metrics(self, policies: Policies | None = None) -> list[tuple[str, str, str, list[tuple[dict[str, str], int]]]]:
        """The metrics of this process: of the store, of decisions by rule, of requests that were decided without the store,
        and of `policies`. For `ratekeeper.prometheus` and `ratekeeper.opentelemetry`.
        """

    def ping(self) -> None:
        """Raises StoreError if the store cannot be asked."""
    def aping(self) -> Awaitable[None]: ...

    # Checks of charges that the caller puts together. An outage raises StoreError.
    # `cost`: of every charge that is not flat; None: what each of them says.
    def check(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """Judges what is asked for by every quota that applies: all of it is charged, or nothing. Cost 0
        only tells; one above every limit is denied. Under an id it is charged once, however often it is
        sent within `keep` seconds."""
    def acheck(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]:
        """`check`, to be awaited. If whoever awaits is cancelled, the request may
        have been charged all the same.

        It is no coroutine: `asyncio.ensure_future`, `gather`, `wait_for` and `shield` take it; `create_task`,
        `asyncio.run` and anyio's `start_soon` want an `async def` that awaits it. Whoever forgets the
        `await` gets a TypeError from `if`.
        """
    def try_check(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision | None:
        """The decision if it takes no I/O, else None, and nothing has happened."""
    def peek(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """What a check would meet; nothing changes. Under an id that is known, the decision that is remembered."""
    def apeek(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def explain(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> str:
        """What a check would meet, for people: a sentence, and a line for every quota that applies."""
    def aexplain(
        self,
        charges: Charge | Sequence[Charge],
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[str]: ...
    def until_allowed(
        self,
        charges: Charge | Sequence[Charge],
        patience: float = 60.0,
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """Waits until it is allowed, at most `patience` seconds in all, the store's included, and as long as a
        leaky bucket asks. If that would not suffice, the denial comes at once. Ctrl-C ends the wait, and so
        does cancelling whoever awaits it."""
    def auntil_allowed(
        self,
        charges: Charge | Sequence[Charge],
        patience: float = 60.0,
        *,
        cost: int | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def once(self, charges: Charge | Sequence[Charge], id: str, keep: float = 600.0) -> Decision:
        """`check` under an id."""
    def aonce(self, charges: Charge | Sequence[Charge], id: str, keep: float = 600.0) -> Awaitable[Decision]: ...
    def reserve(self, charges: Charge | Sequence[Charge], id: str, hold: float) -> Decision:
        """Charges an estimate that is settled or cancelled within `hold` seconds, or lapses and stays."""
    def areserve(self, charges: Charge | Sequence[Charge], id: str, hold: float) -> Awaitable[Decision]: ...
    def settle(self, id: str, actual: int) -> _Settled:
        """Makes the charge of a reservation the actual amount.

        "done", or "already" if it was settled before, "lapsed" if its time was over, "unknown" if there is none.
        """
    def asettle(self, id: str, actual: int) -> Awaitable[_Settled]: ...
    def cancel(self, id: str) -> _Settled:
        """Gives the charge of a reservation back; says the same as `settle`."""
    def acancel(self, id: str) -> Awaitable[_Settled]: ...
    def refund(self, decision: Decision, units: int | None = None) -> int:
        """Gives up to `units` (None: all) of each charge of a decision back, places of concurrency too; says how many
        units. Together, never more than was charged. To limiters an outage is no error: what cannot be given back
        comes back with time."""
    def arefund(self, decision: Decision, units: int | None = None) -> Awaitable[int]: ...
    def reset(self, charge: Charge) -> bool:
        """Forgets a counter; says whether there was one."""
    def areset(self, charge: Charge) -> Awaitable[bool]: ...

    # Overrides: of a project, or without one of the organisation (each project's own limit).
    def set_override(
        self,
        endpoint: str,
        organisation: str | int,
        project: str | int | None = None,
        *,
        max_requests: int,
        expiry: float | None = None,
        ttl: float | None = None,
        reason: str = "",
        author: str = "",
    ) -> None:
        """Sets or replaces one. `expiry` is the window (None: the quota's own), `ttl` its own life.

        `max_requests` of 0 lets nothing pass. Values below that, or below a second, raise ValueError:
        "max_requests must be at least 0", "expiry must be at least 1 second",
        "override_ttl must be at least 1 second".
        """
    def aset_override(
        self,
        endpoint: str,
        organisation: str | int,
        project: str | int | None = None,
        *,
        max_requests: int,
        expiry: float | None = None,
        ttl: float | None = None,
        reason: str = "",
        author: str = "",
    ) -> Awaitable[None]: ...
    def get_override(
        self, endpoint: str, organisation: str | int, project: str | int | None = None
    ) -> Override | None: ...
    def aget_override(
        self, endpoint: str, organisation: str | int, project: str | int | None = None
    ) -> Awaitable[Override | None]: ...
    def delete_override(self, endpoint: str, organisation: str | int, project: str | int | None = None) -> bool:
        """Says whether there was one."""
    def adelete_override(
        self, endpoint: str, organisation: str | int, project: str | int | None = None
    ) -> Awaitable[bool]: ...
    def list_overrides(self, organisation: str | int, project: str | int | None = None) -> list[tuple[str, Override]]:
        """Endpoints with their overrides, sorted by endpoint."""
    def alist_overrides(
        self, organisation: str | int, project: str | int | None = None
    ) -> Awaitable[list[tuple[str, Override]]]: ...
    def clear_overrides(self, organisation: str | int, project: str | int | None = None) -> int:
        """Deletes what `list_overrides` lists; says how many."""
    def aclear_overrides(self, organisation: str | int, project: str | int | None = None) -> Awaitable[int]: ...

    # Switches that operators throw; every process obeys within a second.
    def set_switch(
        self,
        rule: str = "*",
        *,
        mode: _Mode | None = None,
        enforce_percent: int | None = None,
        emergency: Literal["off", "lift", "block"] = "off",
        seconds: float | None = None,
    ) -> None:
        """For a rule, `service/*`, or `*`: a mode, a share of the keys to enforce for, a lift or a
        block; for `seconds`, or until it is cleared."""
    def aset_switch(
        self,
        rule: str = "*",
        *,
        mode: _Mode | None = None,
        enforce_percent: int | None = None,
        emergency: Literal["off", "lift", "block"] = "off",
        seconds: float | None = None,
    ) -> Awaitable[None]: ...
    def clear_switch(self, rule: str = "*") -> bool:
        """Says whether there was one."""
    def aclear_switch(self, rule: str = "*") -> Awaitable[bool]: ...
    def switches(self) -> dict[str, Switch]:
        """As this process knows them."""

@final
class Outages:
    """How many requests were decided without the store."""

    @property
    def allowed(self) -> int: ...
    @property
    def denied(self) -> int: ...
    @property
    def local(self) -> int: ...

@final
class Limiter:
    """Rules in code and a store: all rules that apply are one all-or-nothing check.

    `store`: None is a memory of its own. `instances`: how many processes share the limits,
    for rules with `on_outage="local"`.

    `request` is handed to the key functions of the rules. For rules without one it is
    the key itself (str), or a mapping from names of rules to keys; a rule that is not
    in it, or has None there, does not apply.

    `organisation`, `project` and `endpoint` say whose overrides apply; `endpoint` is the
    quota's name unless it is given (then `endpoint.rpm` for one quota of several).
    `mode` makes this call do less than the rules say: "monitor", or "off".
    """

    def __new__(cls, store: Store | None, rules: Rule | Iterable[Rule], *, instances: int = 1) -> Limiter: ...
    @property
    def store(self) -> Store: ...
    @property
    def rules(self) -> tuple[Rule, ...]: ...
    @property
    def outages(self) -> Outages: ...
    def check(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """Judges what is asked for by every quota that applies: all of it is charged, or nothing. Cost 0
        only tells; one above every limit is denied. Under an id it is charged once, however often it is
        sent within `keep` seconds."""
    def acheck(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]:
        """`check`, to be awaited. If whoever awaits is cancelled, the request may
        have been charged all the same.

        It is no coroutine: `asyncio.ensure_future`, `gather`, `wait_for` and `shield` take it; `create_task`,
        `asyncio.run` and anyio's `start_soon` want an `async def` that awaits it. Whoever forgets the
        `await` gets a TypeError from `if`.
        """
    def try_check(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision | None:
        """The decision if it takes no I/O, else None, and nothing has happened."""
    def peek(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """What a check would meet; nothing changes. Under an id that is known, the decision that is remembered."""
    def apeek(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def explain(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> str:
        """What a check would meet, for people: a sentence, and a line for every quota that applies."""
    def aexplain(
        self,
        request: Any = None,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[str]: ...
    def until_allowed(
        self,
        request: Any = None,
        patience: float = 60.0,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """Waits until it is allowed, at most `patience` seconds in all, the store's included, and as long as a
        leaky bucket asks. If that would not suffice, the denial comes at once. Ctrl-C ends the wait, and so
        does cancelling whoever awaits it."""
    def auntil_allowed(
        self,
        request: Any = None,
        patience: float = 60.0,
        *,
        cost: int = 1,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def check_project(
        self,
        endpoint: str,
        organisation: int | str,
        project: int | str,
        *,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """A project on an endpoint, under the key `endpoint:organisation:project`, with its overrides.

        Fixed windows are counted where Application Kit counts them:
        `ratelimit:{endpoint}:{organisation}:{project}`.
        """
    def acheck_project(
        self,
        endpoint: str,
        organisation: int | str,
        project: int | str,
        *,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def admit_project(
        self,
        tally: Tally,
        endpoint: str,
        organisation: int | str,
        project: int | str,
        mode: _Mode | None = None,
    ) -> Decision | None:
        """`check_project` for who only needs to know what does not simply pass.

        None if it does (allowed, over no quota, nothing to release); `tally` has it then.
        """
    def reserve(
        self,
        request: Any,
        estimate: int,
        id: str,
        hold: float,
        *,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
    ) -> Decision:
        """Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once."""
    def areserve(
        self,
        request: Any,
        estimate: int,
        id: str,
        hold: float,
        *,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
        mode: _Mode | None = None,
    ) -> Awaitable[Decision]: ...
    def settle(self, id: str, actual: int) -> _Settled:
        """Makes the charge of a reservation the actual amount.

        "done", or "already" if it was settled before, "lapsed" if its time was over, "unknown" if there is none.
        """
    def asettle(self, id: str, actual: int) -> Awaitable[_Settled]: ...
    def cancel(self, id: str) -> _Settled:
        """Gives the charge of a reservation back; says the same as `settle`."""
    def acancel(self, id: str) -> Awaitable[_Settled]: ...
    def refund(self, decision: Decision, units: int | None = None) -> int:
        """Gives up to `units` (None: all) of each charge of a decision back, places of concurrency too; says how many
        units. Together, never more than was charged. To limiters an outage is no error: what cannot be given back
        comes back with time."""
    def arefund(self, decision: Decision, units: int | None = None) -> Awaitable[int]: ...
    def reset(
        self,
        request: Any = None,
        *,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
    ) -> int:
        """Forgets the counters of a request; says how many there were."""
    def areset(
        self,
        request: Any = None,
        *,
        organisation: str | int | None = None,
        project: str | int | None = None,
        endpoint: str | None = None,
    ) -> Awaitable[int]: ...

@final
class Request:
    """What policies can see of a request.

    `target`: path and query as they were sent, or `request.get_full_path_info()` of Django.
    `headers`: pairs, in the order they came. `body`: the bytes that were read (None: unread);
    `unreadable_body` says that there is one, but it could not be read whole, which is no absence.
    `peer`: the address at the other end of the connection. `identity`: claims such as
    org, project, user, plan. `context` is what key functions are called with; the
    Request itself, if there is none.
    """

    def __new__(
        cls,
        method: str = "GET",
        target: str = "/",
        *,
        route: str | None = None,
        headers: Iterable[tuple[str | bytes, str | bytes]] | None = None,
        body: bytes | None = None,
        peer: str | None = None,
        identity: Mapping[str, _Scalar] | None = None,
        context: Any = None,
        unreadable_body: bool = False,
    ) -> Request: ...
    @staticmethod
    def looks_into(content_type: bytes | None) -> bool:
        """Whether policies look into a body with this content type; if not, it counts as unreadable."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def route(self) -> str | None: ...
    @property
    def context(self) -> Any: ...
    def header(self, name: str) -> str | None:
        """The first line of that name."""
    def query(self, name: str) -> str | None: ...
    def claim(self, name: str) -> _Scalar | None: ...
    def json(self) -> Any:
        """The JSON in the body; None if there is none that can be read."""

@final
class Needs:
    """What must be known of a request before it can be judged."""

    @property
    def body(self) -> bool: ...
    @property
    def route(self) -> bool: ...
    @property
    def client(self) -> bool: ...
    @property
    def identity(self) -> bool: ...

@final
class PolicyWatch:
    """A source of policies that is being followed, until `stop`, or as long as the policies are used.
    What is in force stays in force. After a fork the child follows it anew with its
    first call that uses the policies."""

    def refresh(self) -> None:
        """Looks now. Raises PolicyError if something cannot be read or is wrong; what is in force stays."""
    def arefresh(self) -> Awaitable[None]: ...
    def stop(self) -> None: ...

@final
class Policies:
    """The policies in force, one for each service; each is swapped whole.

    `key_functions`: by the name of a rule with `caller_key`, from `Request.context` (or the
    Request) to a key or None. `mode`: of all services; None is what RATE_LIMIT_MODE says, read with
    every check, and if that says nothing what the policies say. `hash_secret`: for `hash_keys`.
    `unknown_services`: what a service without a policy means, whose name may be mistyped: "log" says once that it
    is not limited, "refuse" raises ValueError.
    """

    def __new__(
        cls,
        *,
        instances: int = 1,
        mode: _Mode | None = None,
        key_functions: Mapping[str, Callable[[Any], str | None]] | None = None,
        hash_secret: bytes | None = None,
        unknown_services: Literal["log", "refuse"] = "log",
    ) -> Policies: ...
    def install(
        self, document: str | bytes, format: Literal["toml", "yaml", "json"] = "toml", *, source: str = "code"
    ) -> str:
        """Puts a policy into force, or raises PolicyError with everything that is wrong; says of which service."""
    def watch_file(
        self,
        path: str | PathLike[str],
        *,
        format: Literal["toml", "yaml", "json"] | None = None,
        debounce: float = 0.1,
        poll: float = 10.0,
    ) -> PolicyWatch:
        """A file, or a folder with a file for each service. Raises PolicyError if something is wrong now."""
    def watch_mongodb(
        self,
        url: str,
        *,
        database: str | None = None,
        collection: str | None = None,
        services: Iterable[str] | None = None,
        interval: float | None = None,
        deadline: float | None = None,
        copy: str | PathLike[str] | None = None,
    ) -> PolicyWatch:
        """Documents in MongoDB, one for each service, polled; `copy`: a file to start from while it is away."""
    def awatch_mongodb(
        self,
        url: str,
        *,
        database: str | None = None,
        collection: str | None = None,
        services: Iterable[str] | None = None,
        interval: float | None = None,
        deadline: float | None = None,
        copy: str | PathLike[str] | None = None,
    ) -> Awaitable[PolicyWatch]: ...
    def status(self) -> list[dict[str, Any]]:
        """What became of the policies: for each service `service`, `in_force`, `source`, `installed`,
        `refused`, `last_refusal`, `warnings`, `rules`."""
    def endpoint_limits(self, service: str, method: str, route: str) -> list[tuple[str, Quota]]:
        """The quotas of a service that could apply to an endpoint, for documentation."""

@final
class PolicyLimiter:
    """Policies and a store."""

    def __new__(cls, store: Store | None, policies: Policies) -> PolicyLimiter: ...
    @property
    def store(self) -> Store: ...
    @property
    def policies(self) -> Policies: ...
    @property
    def outages(self) -> Outages: ...
    def service(self, name: str) -> ServiceLimiter: ...
    def check(
        self,
        service: str,
        key: str,
        *,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """For a key that the program made itself: the entry for it in `custom`, else the general limit.
        A service without a policy is not limited. `mode` is as in `ServiceLimiter`."""
    def acheck(
        self,
        service: str,
        key: str,
        *,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...

@final
class ServiceLimiter:
    """The limits of one service. Every call sees one policy, whole.

    `request`: None where only the key is known. `key`: for rules with `caller_key`.
    `cost`: for rules that do not say themselves what a request costs.

    `mode`: what this call does, whatever mode the policies have: "monitor" counts by every rule
    and never denies, "on" leaves those alone that only watch. None: the mode of the policies, which
    is RATE_LIMIT_MODE, read with every call, unless they were given one.
    """

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> Needs: ...
    def needs_of(self, request: Request) -> Needs: ...
    def check(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """Judges what is asked for by every quota that applies: all of it is charged, or nothing. Cost 0
        only tells; one above every limit is denied. Under an id it is charged once, however often it is
        sent within `keep` seconds."""
    def acheck(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]:
        """`check`, to be awaited. If whoever awaits is cancelled, the request may
        have been charged all the same.

        It is no coroutine: `asyncio.ensure_future`, `gather`, `wait_for` and `shield` take it; `create_task`,
        `asyncio.run` and anyio's `start_soon` want an `async def` that awaits it. Whoever forgets the
        `await` gets a TypeError from `if`.
        """
    def try_check(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision | None:
        """The decision if it takes no I/O, else None, and nothing has happened."""
    def peek(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """What a check would meet; nothing changes. Under an id that is known, the decision that is remembered."""
    def apeek(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def explain(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> str:
        """What a check would meet, for people: a sentence, and a line for every quota that applies."""
    def aexplain(
        self,
        request: Request | None = None,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[str]: ...
    def until_allowed(
        self,
        request: Request | None = None,
        patience: float = 60.0,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Decision:
        """Waits until it is allowed, at most `patience` seconds in all, the store's included, and as long as a
        leaky bucket asks. If that would not suffice, the denial comes at once. Ctrl-C ends the wait, and so
        does cancelling whoever awaits it."""
    def auntil_allowed(
        self,
        request: Request | None = None,
        patience: float = 60.0,
        *,
        key: str | None = None,
        cost: int = 1,
        mode: _Mode | None = None,
        id: str | None = None,
        keep: float = 600.0,
    ) -> Awaitable[Decision]: ...
    def reserve(
        self,
        request: Request | None,
        estimate: int,
        id: str,
        hold: float,
        *,
        key: str | None = None,
        mode: _Mode | None = None,
    ) -> Decision:
        """Charges an estimate under `id`, to be settled or cancelled within `hold` seconds; charged once."""
    def areserve(
        self,
        request: Request | None,
        estimate: int,
        id: str,
        hold: float,
        *,
        key: str | None = None,
        mode: _Mode | None = None,
    ) -> Awaitable[Decision]: ...
    def settle(self, id: str, actual: int) -> _Settled:
        """Makes the charge of a reservation the actual amount.

        "done", or "already" if it was settled before, "lapsed" if its time was over, "unknown" if there is none.
        """
    def asettle(self, id: str, actual: int) -> Awaitable[_Settled]: ...
    def cancel(self, id: str) -> _Settled:
        """Gives the charge of a reservation back; says the same as `settle`."""
    def acancel(self, id: str) -> Awaitable[_Settled]: ...
    def refund(self, decision: Decision, units: int | None = None) -> int:
        """Gives up to `units` (None: all) of each charge of a decision back, places of concurrency too; says how many
        units. Together, never more than was charged. To limiters an outage is no error: what cannot be given back
        comes back with time."""
    def arefund(self, decision: Decision, units: int | None = None) -> Awaitable[int]: ...
    def release(self, decision: Decision) -> None:
        """Gives the places back that a request held (`Decision.holds`): call it when the response is sent."""
    def arelease(self, decision: Decision) -> Awaitable[None]: ...
    def reset(self, request: Request | None = None, *, key: str | None = None) -> int:
        """Forgets the counters of a request; says how many there were."""
    def areset(self, request: Request | None = None, *, key: str | None = None) -> Awaitable[int]: ...

EXPOSE_HEADERS: str
"""Every field about limits that can be sent: for Access-Control-Expose-Headers."""

STORE_SCHEMES: tuple[str, ...]
"""Every scheme that the URL of a store may have."""

def _decision_of(parts: Any) -> Decision:
    """A decision from its parts: what `pickle` calls."""

def _verdict_of(said: Any) -> Verdict:
    """A verdict from its parts: what `pickle` calls."""

def _denial_of(parts: Any) -> Denial:
    """A denial from its fields: what `pickle` calls."""

def mode_from_environment() -> _Mode | None:
    """The mode in RATE_LIMIT_MODE, if it says one; ValueError if it says something else."""

def server_arguments(url: str) -> dict[str, Any]:
    """The server of a URL, as arguments of `redis.Redis`, or of `redis.sentinel.Sentinel` and its `service_name`: for
    administrative calls that the engine has not.
    """
