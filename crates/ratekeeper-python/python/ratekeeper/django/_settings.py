"""The settings, read when they are first needed; the middleware needs them all when a server starts.

    RATELIMIT_STORES = {
        "default": "redis://127.0.0.1:6379",
        "batch": {"url": "redis://127.0.0.1:6380", "prefix": "batch:", "deadline": 0.1},
    }
    RATELIMIT_PROJECT = "myapp.auth.project_of"   # (organisation, project) of a request, or None
    RATELIMIT_MODE = None                         # "on", "monitor", "off", a function; None: RATE_LIMIT_MODE
    RATELIMIT_ON_OUTAGE = "allow"                 # "allow", "deny", "local"
    RATELIMIT_LEGACY_HEADERS = False              # RateLimit-Limit, -Remaining and -Reset as well
    RATELIMIT_USE_X_PREFIX = False                # the same as X-RateLimit-*
    RATELIMIT_LEGACY_RESET = "delta"              # what their Reset counts: seconds from now, or "epoch"
    RATELIMIT_BODY = "detail"                     # of a 429; or "problem"
    RATELIMIT_RETRY_AFTER_SPREAD = 0              # percent by which Retry-After is lengthened at random
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.utils.functional import LazyObject
from django.utils.module_loading import import_string

from .._modes import MODES, Mode, ModeSource, RateLimitMode, current_mode, plain
from .._native import HttpOptions, Limiter, Quota, Store
from .._rates import Quotas
from .._web import ON_OUTAGE, LimiterOf, OnOutage, Pair, check_plain_callable, limiters, pair_of
from ._keys import addresses

Value = TypeVar("Value")


def _one_of(name: str, default: str | None, allowed: tuple[str | None, ...]) -> Any:
    value = getattr(settings, name, default)
    if value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise ImproperlyConfigured(f"{name}: got {value!r}; expected one of {choices}")
    return value


_stores: dict[str, Store] = {}
# Stores that something else than RATELIMIT_STORES knows.
_provided: dict[str, Callable[[], Store]] = {}
_limiter_of: LimiterOf = limiters()
# Whether legacy fields are sent if no setting says it.
_sends_legacy = False
# Two threads that need a store first must not open two: in memory, each would count for itself.
_opening = threading.Lock()


def _after_fork() -> None:
    global _opening
    # A thread that opens a store at that moment is not in the child.
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def store_named(name: str) -> Store:
    """The store that RATELIMIT_STORES has under this name; the same one each time."""
    if name not in _stores:
        with _opening:
            if name not in _stores:
                _stores[name] = _open(name)
    return _stores[name]


def named() -> Mapping[str, Any]:
    """What RATELIMIT_STORES says."""
    stores = getattr(settings, "RATELIMIT_STORES", {})
    if not isinstance(stores, Mapping):
        got = type(stores).__name__
        raise ImproperlyConfigured(f"RATELIMIT_STORES: expected a dictionary from names to stores, got {got}")
    return stores


def provide(name: str, store: Callable[[], Store]) -> None:
    """Says what a store is that RATELIMIT_STORES does not have."""
    _provided[name] = store


def provided() -> tuple[str, ...]:
    """The names of such stores."""
    return tuple(_provided)


def check_store(name: str) -> None:
    """Raises ImproperlyConfigured if stores are known, and this is not among them."""
    if settings.configured and name not in _provided and (stores := named()):
        _said_of(name, stores)


def _said_of(name: str, stores: Mapping[str, Any]) -> Any:
    if name not in stores:
        known = ", ".join(map(repr, stores)) or "none"
        raise ImproperlyConfigured(
            f"RATELIMIT_STORES: got {known}; expected a store {name!r}, such as "
            f'{{"{name}": "redis://127.0.0.1:6379"}}'
        )
    return stores[name]


def _open(name: str) -> Store:
    stores = named()
    if name in _provided and name not in stores:
        try:
            return _provided[name]()
        except RuntimeError as error:
            raise ImproperlyConfigured(str(error)) from error
    said = _said_of(name, stores)
    try:
        if isinstance(said, Store):
            return said
        return Store.redis(**said) if isinstance(said, dict) else Store.open(said)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"RATELIMIT_STORES[{name!r}]: {error}") from error


def limiter_of(store: str, policy_name: str, quotas: Quota | Quotas, on_outage: OnOutage) -> Limiter:
    """The limiter with one rule in a store; the same for the same arguments."""
    return _limiter_of(store_named(store), policy_name, quotas, on_outage)


def sends_legacy() -> bool:
    """Whether legacy fields are sent."""
    return bool(uses_x_prefix() or getattr(settings, "RATELIMIT_LEGACY_HEADERS", _sends_legacy))


def uses_x_prefix() -> bool:
    """Whether legacy fields are called `X-RateLimit-*`."""
    return bool(getattr(settings, "RATELIMIT_USE_X_PREFIX", False))


def counts_from_1970() -> bool:
    """Whether legacy fields say the instant of their reset, and not the seconds until then."""
    return bool(_one_of("RATELIMIT_LEGACY_RESET", "delta", ("delta", "epoch")) == "epoch")


@functools.cache
def http_options(*, has_legacy: bool = True) -> HttpOptions:
    """What clients are told; without legacy fields for who makes these of the others."""
    body = _one_of("RATELIMIT_BODY", "detail", ("detail", "problem"))
    legacy: Literal["X-RateLimit", "RateLimit"] | None = None
    if has_legacy and sends_legacy():
        legacy = "X-RateLimit" if uses_x_prefix() else "RateLimit"
    spread = getattr(settings, "RATELIMIT_RETRY_AFTER_SPREAD", 0)
    try:
        return HttpOptions(
            body=body,
            legacy=legacy,
            legacy_reset="epoch" if counts_from_1970() else "delta",
            retry_after_spread=spread,
        )
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"RATELIMIT_RETRY_AFTER_SPREAD: {error}") from error


@functools.cache
def on_outage() -> OnOutage:
    """What an outage of the store means to limits that do not say it themselves."""
    return cast(OnOutage, _one_of("RATELIMIT_ON_OUTAGE", "allow", ON_OUTAGE))


@functools.cache
def _mode_source() -> ModeSource:
    said = getattr(settings, "RATELIMIT_MODE", None)
    if callable(said):
        return _plain("RATELIMIT_MODE", cast(ModeSource, said))
    word = _one_of("RATELIMIT_MODE", None, (None, *MODES))
    return None if word is None else plain(word)


def _plain(name: str, function: Value) -> Value:
    try:
        return check_plain_callable(name, function)
    except TypeError as error:
        raise ImproperlyConfigured(str(error)) from error


def mode() -> Mode:
    """The mode in force now."""
    return current_mode(_mode_source())


def get_rate_limit_mode() -> RateLimitMode:
    """The mode in force now: what RATELIMIT_MODE says, else RATE_LIMIT_MODE of the environment, else `on`."""
    return RateLimitMode(mode())


def is_rate_limit_disabled() -> bool:
    """Whether nothing is enforced, for limiters of one's own that know no monitor mode."""
    return mode() != "on"


@functools.cache
def _identify() -> Callable[[HttpRequest], Pair | None]:
    said = getattr(settings, "RATELIMIT_PROJECT", None)
    if said is None:
        return _project_of_attributes
    try:
        found = import_string(said) if isinstance(said, str) else said
    except ImportError as error:
        raise ImproperlyConfigured(f"RATELIMIT_PROJECT: {error}") from error
    if not callable(found):
        raise ImproperlyConfigured(f"RATELIMIT_PROJECT: got {said!r}; expected a function, or its dotted name")
    return _plain("RATELIMIT_PROJECT", cast(Callable[[HttpRequest], Pair | None], found))


def check(stores: Iterable[str] = ()) -> None:
    """Raises ImproperlyConfigured if a setting is wrong, or one of these stores is not there, before there are requests."""
    for read in (http_options, on_outage, _mode_source, _identify, addresses):
        read()
    for name in stores:
        store_named(name)


def project_of(request: HttpRequest) -> Pair | None:
    """The organisation and project of a request, if it is known whose it is."""
    found = _identify()(request)
    return None if found is None else pair_of("RATELIMIT_PROJECT", found)


def _project_of_attributes(request: HttpRequest) -> Pair | None:
    found = _both_of(request)
    if found is None:
        # What an authentication has left there, such as a token. What is lazy, such as the user, may ask a database.
        values = (value for value in vars(request).values() if not isinstance(value, LazyObject))
        found = next((pair for value in values if (pair := _both_of(value)) is not None), None)
    return found


def _both_of(value: object) -> Pair | None:
    organisation = getattr(value, "organization_id", None)
    project = getattr(value, "project_id", None)
    return None if organisation is None or project is None else (organisation, project)


def send_legacy() -> None:
    """Makes legacy fields the default."""
    global _sends_legacy
    _sends_legacy = True
    http_options.cache_clear()


def _forget(*, setting: str, **_: object) -> None:
    global _limiter_of
    if setting.startswith("RATELIMIT_"):
        for read in (http_options, on_outage, _mode_source, _identify, addresses):
            read.cache_clear()
        _stores.clear()
        _limiter_of = limiters()


# Sent by `override_settings` in tests.
setting_changed.connect(_forget)
