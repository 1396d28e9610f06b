"""Metrics for the registry of prometheus_client: `REGISTRY.register(Collector(store, policies))`.

Names and labels are those of the server's `/metrics`.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector as _Collector

from ._native import Policies, Store

__all__ = ["Collector"]


class Collector(_Collector):
    """What a store and policies have to show, decisions by rule, and the requests that were decided without the store.

    Both are counted for the whole process, so one collector is enough for any number of limiters on a store. Decisions are
    counted from when the first one is made: those of rules in code have no service.
    """

    def __init__(self, store: Store, policies: Policies | None = None) -> None:
        self._store, self._policies = store, policies
        # Counting begins here, and not with the first scrape.
        store.metrics(policies)

    def collect(self) -> Iterable[Metric]:
        """Reads everything anew, without asking the store's server."""
        return [_metric(*family) for family in self._store.metrics(self._policies)]


def _metric(name: str, meaning: str, kind: str, samples: list[tuple[dict[str, str], int]]) -> Metric:
    labels = list(samples[0][0]) if samples else []
    family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    metric = family(name, meaning, labels=labels)
    for sample, value in samples:
        metric.add_metric([sample[label] for label in labels], value)
    return metric
