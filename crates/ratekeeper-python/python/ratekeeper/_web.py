"""What FastAPI's and Django's limiters have in common."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import string
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import quote

from ._native import Decision, Denial, HttpOptions, Limiter, Quota, Rule, Store
from ._rates import Quotas

OnOutage: TypeAlias = Literal["allow", "deny", "local"]
LimiterOf: TypeAlias = Callable[[Store, str, Quota | Quotas, OnOutage], Limiter]
Pair: TypeAlias = tuple[int | str, int | str]

ON_OUTAGE: tuple[OnOutage, ...] = get_args(OnOutage)

DETAIL = HttpOptions(body="detail")

# Limits that are made up per request, by `apply_rate_limit`, must not fill the memory.
LIMITERS_MAX = 1_024
# Endpoints of which it is remembered that they were told; of more, it is told more often.
_ENDPOINTS_MAX = 1_024

# Suffixes of endpoints: longer ones that come from requests are hashed.
SUFFIX_BYTES_MAX = 128
# Names of policies that were derived from suffixes: the engine has room for ten times as many names in all.
DERIVED_NAMES_MAX = 10_000
# As long as the engine takes them.
_NAME_LETTERS_MAX = 128
# All that print, but for what escapes others.
_NAME_LETTERS = (string.digits + string.ascii_letters + string.punctuation + " ").replace("%", "")
_REQUESTS = "requests"
_derived_names: set[str] = set()

_log = logging.getLogger("ratekeeper")


def limiters() -> LimiterOf:
    """A function for the limiter with one rule; the same for the same arguments."""

    @functools.lru_cache(maxsize=LIMITERS_MAX)
    def limiter_of(store: Store, policy_name: str, quotas: Quota | Quotas, on_outage: OnOutage) -> Limiter:
        said = quotas if isinstance(quotas, Quota) else dict(quotas)
        return Limiter(store, Rule(policy_name, said, on_outage=on_outage))

    return limiter_of


def pair_of(name: str, found: Any) -> Pair:
    """Organisation and project as `name` has found them, or else TypeError: two letters of a text are none."""
    if isinstance(found, (tuple, list)) and len(found) == 2:
        return found[0], found[1]
    if inspect.iscoroutine(found):
        found.close()
    got = repr(found) if isinstance(found, (str, bytes, tuple, list)) else type(found).__name__
    raise TypeError(f"{name}: got {got}; expected (organisation, project), or None for nobody's request")


@functools.lru_cache(maxsize=_ENDPOINTS_MAX)
def warn_of_nobody(endpoint: str, who: str) -> None:
    """Says once for an endpoint that a limit by project met a request of which it is not known whose it is."""
    # Cached: that is what makes it once.
    _log.warning(
        "%s: a request of nobody that %s knows has no limit by project; "
        "if it should have had one, authentication has to run before the limiter",
        endpoint,
        who,
    )


@functools.lru_cache(maxsize=_ENDPOINTS_MAX)
def warn_of_one_counter(endpoint: str, first: str, second: str) -> None:
    """Says once for an endpoint that two limits of Application Kit are held against one count."""
    _log.warning(
        "%s: two limits by project, %s and %s, count in one counter, as in Application Kit: each is held against the count of both",
        endpoint, first, second,
    )


Value = TypeVar("Value")


def check_kind(name: str, value: Value, *kinds: type | None) -> Value:
    """A setting of one of these types, or else TypeError."""
    if isinstance(value, tuple(type(None) if kind is None else kind for kind in kinds)):
        return value
    expected = " or ".join("None" if kind is None else kind.__name__ for kind in kinds)
    raise TypeError(f"{name}: expected {expected}, got {type(value).__name__}")


def check_callable(name: str, value: Value) -> Value:
    """A setting that is a function, or else TypeError."""
    if callable(value):
        return value
    raise TypeError(f"{name}: expected a function, got {type(value).__name__}")


def check_plain_callable(name: str, value: Value) -> Value:
    """The same of a function that nobody would await."""
    check_callable(name, value)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):
        raise TypeError(f"{name}: expected a plain function, got one that is async (def, not async def)")
    return value


def check_word(name: str, value: object, words: tuple[str | None, ...]) -> None:
    """A setting that is one of a few words, or else ValueError."""
    if value not in words:
        raise ValueError(f"{name}: got {value!r}; expected {' or '.join(map(repr, words))}")


def derive_policy_name(key_suffix: str) -> str:
    """The name of a policy that has only a suffix: "" is "requests", "/elements" is "elements", "/a/b" is "a/b".

    Suffixes may come from requests. So what cannot stand in a header field is escaped, and what is too long cut,
    with a digest of all of it. Names stay for the life of the process: beyond a bound, new ones are "requests".
    """
    name = quote(key_suffix.lstrip("/"), safe=_NAME_LETTERS, errors="backslashreplace")
    if not name:
        return _REQUESTS
    if len(name) > _NAME_LETTERS_MAX:
        name = f"{name[: _NAME_LETTERS_MAX - 17]}~{_digest(name)[:16]}"
    if name not in _derived_names:
        if len(_derived_names) >= DERIVED_NAMES_MAX:
            return _REQUESTS
        _derived_names.add(name)
    return name


def check_suffix(key_suffix: str) -> str:
    """A suffix of endpoints that a program gives a limiter, or else TypeError or ValueError."""
    check_kind("key_suffix", key_suffix, str)
    if not key_suffix.isascii() or not key_suffix.isprintable() or len(key_suffix) > SUFFIX_BYTES_MAX:
        shown = ascii(key_suffix[:32]) if len(key_suffix) <= SUFFIX_BYTES_MAX else f"{len(key_suffix)} characters"
        raise ValueError(f"key_suffix: got {shown}; expected at most {SUFFIX_BYTES_MAX} printable ASCII characters")
    return key_suffix


def bounded_suffix(key_suffix: str) -> str:
    """A suffix of endpoints that may come from a request: one that is too long is hashed."""
    check_kind("key_suffix", key_suffix, str)
    if key_suffix.isascii() and len(key_suffix) <= SUFFIX_BYTES_MAX:
        return key_suffix
    encoded = key_suffix.encode("utf-8", "backslashreplace")
    return encoded.decode() if len(encoded) <= SUFFIX_BYTES_MAX else f"/sha256:{_digest(encoded)}"


def _digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def denial_of(decision: Decision, options: HttpOptions) -> Denial:
    """What is answered to a denied request."""
    denial = decision.denial(options)
    assert denial is not None, "only asked after a denial"
    return denial


def detail_of(decision: Decision) -> str:
    """The sentence for clients: the limit is exceeded, or could not be checked."""
    detail: str = json.loads(denial_of(decision, DETAIL).body)["detail"]
    return detail
