"""The decision tables of `testdata/vectors`, through the package, on every store."""

from __future__ import annotations

import pathlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from conftest import Backend
from servers import REPOSITORY

from ratekeeper import Charge, Decision, ManualClock, Store

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

VECTORS = REPOSITORY / "testdata" / "vectors"
START_SECS = 1_700_000_000
FILES = sorted(VECTORS.glob("*/*.toml"))


def test_there_are_tables() -> None:
    assert len(FILES) >= 30


def cases(path: pathlib.Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(path.read_text())["case"]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_vectors(path: pathlib.Path, way: str, backend: Backend) -> None:
    clock = ManualClock()
    for number, case in enumerate(cases(path)):
        # An empty store for each case: on a server, under a prefix of its own.
        store = backend.store(clock=clock, **({"prefix": f"{number}."} if backend.server else {}))
        runner = Runner(store, clock, case, way == "async")
        for index, step in enumerate(case["step"]):
            place = f"{path.parent.name}/{path.name}: case {case['name']!r}, step {index + 1}"
            for field, wanted, found in await runner.run(step):
                assert found == wanted, f"{place}: {field}"


class Runner:
    """Runs the steps of one case."""

    def __init__(self, store: Store, clock: ManualClock, case: dict[str, Any], is_async: bool) -> None:
        self.store, self.clock, self.case, self.is_async = store, clock, case, is_async
        self.decisions: dict[str, Decision] = {}

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """A method of the store, in the form that is being tested."""
        if not self.is_async:
            return getattr(self.store, name)(*arguments, **options)
        form: Callable[..., Awaitable[Any]] = getattr(self.store, f"a{name}")
        return await form(*arguments, **options)

    def instant(self, at: int) -> int:
        return int(self.case.get("start", START_SECS)) * 1_000_000 + at

    def charge(self, spec: dict[str, Any]) -> Charge:
        spec = {"name": "q", "key": "k", **self.case.get("defaults", {}), **spec}
        if "org" in spec:
            spec["organisation"] = spec.pop("org")
        if rule := spec.pop("rule", None):
            # Charges of a call are no rule's: only their names must differ.
            spec["name"] = f"{rule}.{spec['name']}"
        return Charge(spec.pop("name"), spec.pop("quota"), spec.pop("key"), **spec)

    async def run(self, step: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        """Pairs of what was expected and found, by the name of the field."""
        self.clock.set_micros(max(0, self.instant(step["at"])))
        try:
            return [*await self.done(step), *([("error", step["error"], None)] if "error" in step else [])]
        except ValueError as error:
            wanted = step.get("error")
            assert wanted is not None, f"{error} (at {step})"
            return [("error", True, wanted in str(error))]

    async def done(self, step: dict[str, Any]) -> list[tuple[str, Any, Any]]:
        if "check" in step:
            decision = await self.decide(step)
            if "label" in step:
                self.decisions[step["label"]] = decision
            return list(differences(step, decision))
        if "settle" in step:
            found = await self.call("settle", step["settle"]["id"], step["settle"]["actual"])
            return [("settled", step.get("settled", found), found)]
        if "cancel" in step:
            found = await self.call("cancel", step["cancel"])
            return [("settled", step.get("settled", found), found)]
        if "refund" in step:
            await self.call("refund", self.decisions[step["refund"]["of"]], step["refund"]["units"])
        elif "reset" in step:
            counted = await self.call("reset", self.charge(step["reset"]))
            assert counted == step.get("counted", counted)
        elif "set_override" in step:
            await self.set_override(step["set_override"])
        else:
            spec = step["delete_override"]
            await self.call("delete_override", spec["endpoint"], spec["org"], spec.get("project"))
        return []

    async def decide(self, step: dict[str, Any]) -> Decision:
        charges = [self.charge(spec) for spec in step["check"]]
        found: Decision
        # A peek has no id to be remembered under.
        if step.get("peek"):
            found = await self.call("peek", charges)
        elif "once" in step:
            found = await self.call("once", charges, step["once"]["id"], step["once"]["keep"] / 1e6)
        elif "reserve" in step:
            found = await self.call("reserve", charges, step["reserve"]["id"], step["reserve"]["hold"] / 1e6)
        else:
            found = await self.call("check", charges)
        return found

    async def set_override(self, spec: dict[str, Any]) -> None:
        window, expires = spec.get("window_ms"), spec.get("expires")
        ttl = None if expires is None else (self.instant(expires) - self.clock.micros) / 1e6
        await self.call(
            "set_override", spec["endpoint"], spec["org"], spec.get("project"), max_requests=spec["limit"],
            expiry=None if window is None else window / 1000, ttl=ttl,
        )


def micros(seconds: float) -> int | str:
    return "never" if seconds == float("inf") else round(seconds * 1e6)


def differences(step: dict[str, Any], decision: Decision) -> Iterator[tuple[str, Any, Any]]:
    verdicts = decision.verdicts
    found = {
        "allowed": decision.allowed,
        "admitted": [verdict.admitted for verdict in verdicts],
        "remaining": [verdict.remaining for verdict in verdicts],
        "reset_after": [micros(verdict.reset_after) for verdict in verdicts],
        "retry_after": micros(decision.retry_after),
        "proceed_after": micros(decision.proceed_after),
        "levels": [verdict.level for verdict in verdicts],
        "origin": decision.origin,
        "explain": decision.explain(),
        "strictest": decision.strictest.name if decision.strictest else "",
    }
    for field, value in found.items():
        if field in step:
            yield field, step[field], value
