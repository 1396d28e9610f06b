"""Metrics for OpenTelemetry: `observe(store, policies)` makes instruments of the application's own meter provider.

Names are those of the server's metrics, and attributes its labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from ._native import Policies, Store

__all__ = ["observe"]

_Samples = list[tuple[dict[str, str], int]]
_READ_FOR = 0.5
"""Seconds for which what was read is shown: a reader asks for one instrument after the other."""


def observe(store: Store, policies: Policies | None = None, *, meter: Meter | None = None) -> None:
    """Makes an observable instrument for each metric; `meter` is that of the global provider unless it is given.

    They are read when the application's own reader collects, and live as long as its provider. Decisions, and
    requests that were decided without the store, are counted for the whole process, so one call is enough for any number of
    limiters on a store. Decisions are counted from the first call on: those of rules in code have no service.
    """
    meter = meter or get_meter("ratekeeper")
    reading = _Reading(store, policies)
    for name, meaning, kind, _ in store.metrics(policies):
        create = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
        create(name, callbacks=[reading.callback(name)], unit="1", description=meaning)


class _Reading:
    """What was read last, and until when it is shown. Without a lock, which a fork could leave locked: at worst, two read."""

    def __init__(self, store: Store, policies: Policies | None) -> None:
        self._store, self._policies = store, policies
        self._read: tuple[float, dict[str, _Samples]] = (0.0, {})

    def callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """What shows one metric."""
        return lambda _: [Observation(value, labels) for labels, value in self._of(name)]

    def _of(self, name: str) -> _Samples:
        until, samples = self._read
        if time.monotonic() >= until:
            samples = {family: of_family for family, _, _, of_family in self._store.metrics(self._policies)}
            self._read = (time.monotonic() + _READ_FOR, samples)
        return samples.get(name, [])
