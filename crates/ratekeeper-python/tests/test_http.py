"""What HTTP clients are told."""

from __future__ import annotations

import json

import ratekeeper
from ratekeeper import HttpOptions, Limiter, ManualClock, Rule, Store, Tally


def limiter(*rules: Rule) -> Limiter:
    return Limiter(Store.memory(clock=ManualClock()), rules)


def test_headers_of_every_policy() -> None:
    limits = limiter(Rule("requests", "2/60s fixed_window"), Rule("elements", "5/60s fixed_window"))
    assert limits.check("a").headers() == [
        ("ratelimit-policy", '"requests";q=2;w=60, "elements";q=5;w=60'),
        ("ratelimit", '"requests";r=1;t=60, "elements";r=4;t=60'),
    ]


def test_a_tally_accumulates_the_decisions_of_a_request() -> None:
    requests = limiter(Rule("requests", "2/60s fixed_window"))
    elements = limiter(Rule("elements", "5/60s fixed_window"))
    tally = Tally()
    assert not tally and tally.headers() == []
    tally.add(requests.check("a"))
    tally.add(elements.check("a", cost=9))
    tally.add(requests.check("a"))
    assert tally
    fields = dict(tally.headers(HttpOptions(legacy="X-RateLimit")))
    assert fields["ratelimit-policy"] == '"requests";q=2;w=60, "elements";q=5;w=60'
    assert fields["ratelimit"].startswith('"requests";r=0;t=60, "elements";r=5')
    assert (fields["x-ratelimit-limit"], fields["x-ratelimit-remaining"]) == ("5", "5")
    tally.add(requests.check("b"), partition="b")
    assert '"requests";q=2;w=60;pk=:Yg==:' in dict(tally.headers())["ratelimit-policy"]
    assert dict(tally.headers(HttpOptions(standard=None))) == {}


def test_a_denial_has_a_status_fields_and_a_body() -> None:
    limits = limiter(Rule("requests", "1/60s fixed_window"))
    assert limits.check("a").denial() is None
    denied = limits.check("a")
    denial = denied.denial()
    assert denial is not None and (denial.status, denial.retry_after) == (429, 60)
    assert denial.headers == [
        ("content-type", "application/problem+json"), ("cache-control", "no-store"), ("retry-after", "60"),
    ]
    assert json.loads(denial.body)["violated-policies"] == ["requests"]
    assert denied.headers()[2:] == denial.headers
    plain = denied.denial(HttpOptions(body="detail"))
    assert plain is not None and plain.content_type == "application/json"
    assert json.loads(plain.body) == {"detail": "Rate limit exceeded. Try again later."}


def test_what_is_told_when_nobody_is_limited() -> None:
    limits = limiter(Rule("requests", "1/60s"))
    assert limits.check("a", mode="off").headers() == []


def test_options_can_be_asked_what_they_send() -> None:
    options = HttpOptions(standard=None, legacy="RateLimit", legacy_reset="epoch")
    assert options.field_names == ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]
    limits = limiter(Rule("requests", "1/60s fixed_window"))
    assert limits.check("a").headers(options)[-1] == ("ratelimit-reset", "1700000060")
    assert ratekeeper.EXPOSE_HEADERS.startswith("ratelimit-policy, ratelimit, retry-after")


def test_a_wait_is_lengthened_by_a_random_share_and_never_shortened() -> None:
    limits = limiter(Rule("requests", "1/60s fixed_window"))
    limits.check("a")
    denied = limits.check("a")
    waits = set()
    for _ in range(200):
        denial = denied.denial(HttpOptions(retry_after_spread=10))
        assert denial is not None and dict(denial.headers)["retry-after"] == str(denial.retry_after)
        waits.add(denial.retry_after)
    assert waits <= set(range(60, 67)) and len(waits) > 1


def test_legacy_fields_are_of_the_policy_that_denies() -> None:
    limits = limiter(Rule("few", "1/60s fixed_window"), Rule("many", "1000/h fixed_window"))
    limits.check("a")
    fields = dict(limits.check("a").headers(HttpOptions(legacy="X-RateLimit")))
    assert [fields[f"x-ratelimit-{name}"] for name in ("limit", "remaining", "reset")] == ["1", "0", "60"]
    assert fields["retry-after"] == "60"
