"""Metrics through the libraries that applications have: the names and labels of the server's."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from servers import REPOSITORY, nobody

from ratekeeper import Limiter, Policies, PolicyLimiter, Rule, Store
from ratekeeper.opentelemetry import observe
from ratekeeper.prometheus import Collector

# A test of the server holds this table against what it shows.
DOCUMENTED = set(re.findall(r"ratekeeper_\w+", (REPOSITORY / "docs" / "server.md").read_text()))
POLICY = 'service = "s"\n[[rules]]\nname = "r"\nkeys = "all"\nquota = "5/s"\n'


@pytest.fixture
def policies() -> Policies:
    policies = Policies()
    policies.install(POLICY)
    return policies


@pytest.fixture
def away() -> Iterator[Store]:
    """A store where nobody answers."""
    with nobody() as port:
        yield Store.redis(f"redis://127.0.0.1:{port}", deadline=0.2)


def scraped(store: Store, policies: Policies | None = None) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(Collector(store, policies))
    lines = generate_latest(registry).decode().splitlines()
    values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {series: float(value) for series, value in values}


def test_a_scrape_has_the_names_and_labels_of_the_server(policies: Policies) -> None:
    values = scraped(Store.memory(), policies)
    names = {series.split("{")[0] for series in values}
    assert names <= DOCUMENTED, names - DOCUMENTED
    assert {"ratekeeper_outage_decisions_total", "ratekeeper_store_failing", "ratekeeper_policy_in_force"} <= names
    assert values['ratekeeper_policy_in_force{service="s"}'] == 1
    assert 'ratekeeper_rule_over_limit_total{rule="r",service="s"}' in values
    assert 'ratekeeper_policy_reloads_total{result="refused",service="s"}' in values


def test_what_failed_open_is_in_the_next_scrape_and_in_the_log(
    away: Store, caplog: pytest.LogCaptureFixture
) -> None:
    failed_open = 'ratekeeper_outage_decisions_total{outcome="allowed"}'
    before = scraped(away)[failed_open]
    limiters = [Limiter(away, Rule(name, "1/1h")) for name in ("one", "another")]
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for _ in range(10):
            assert all(limiter.check("a") for limiter in limiters)
    values = scraped(away)
    assert values[failed_open] - before == 20, "of all limiters"
    assert values["ratekeeper_store_failures_total"] == 20
    lines = [record.getMessage() for record in caplog.records if "passed uncounted" in record.getMessage()]
    assert len(lines) == 2 and 'rules="one"' in lines[0] and 'rules="another"' in lines[1], lines


def test_decisions_are_counted_by_rule(policies: Policies) -> None:
    store, registry = Store.memory(), CollectorRegistry()
    policies.install('service = "counted"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "2/1h fixed_window"\n')
    registry.register(Collector(store, policies))
    service, own = PolicyLimiter(store, policies).service("counted"), Limiter(store, Rule("in-code", "1/1h"))
    for _ in range(3):
        service.check(key="ann")
        own.check("ann")
    own.peek("ann")

    def count(service: str, rule: str, outcome: str) -> float | None:
        labels = {"service": service, "rule": rule, "plan": "default", "outcome": outcome}
        return registry.get_sample_value("ratekeeper_decisions_total", labels)

    assert (count("counted", "r", "allowed"), count("counted", "r", "denied")) == (2, 1)
    assert (count("", "in-code", "allowed"), count("", "in-code", "denied")) == (1, 2)


def test_a_meter_shows_what_a_scrape_does(policies: Policies) -> None:
    store, reader = Store.memory(), InMemoryMetricReader()
    provider = MeterProvider([reader])
    observe(store, policies, meter=provider.get_meter("ratekeeper"))
    data = reader.get_metrics_data()
    assert data is not None
    shown = {
        (metric.name, tuple(sorted((point.attributes or {}).items())))
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    expected = {
        (name, tuple(sorted(labels.items())))
        for name, _, _, samples in store.metrics(policies)
        for labels, _ in samples
    }
    assert shown == expected and len(shown) > 30
    provider.shutdown()
