#!/usr/bin/env python3
"""Compares the Python package with its peers; `make bench-python` runs it.

    bench.py --out docs/benchmarks.md [--quick]

Candidates of a comparison take turns, round after round; medians and the ratios of medians
are written between the marks of this section, with what they were measured under.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "crates" / "ratekeeper-python" / "tests"))

import candidates as c  # noqa: E402
import web  # noqa: E402
from servers import RedisServer  # noqa: E402

PACKAGES = (
    "ratekeeper", "limits", "redis", "hiredis", "uvloop", "slowapi", "fastapi", "uvicorn", "django", "django-ratelimit",
)

# Runs for so many seconds and says how many per second.
Candidate = Callable[[float], float]


@dataclasses.dataclass
class Comparison:
    """Candidates that take turns, and what is promised of them."""

    title: str
    candidates: dict[str, Candidate]
    # What is promised: this one at least so many times as fast as that one.
    promises: list[tuple[str, str, float]]
    rates: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    def run(self, rounds: int, seconds: float) -> None:
        """All in turn, and in the other direction in every second round."""
        for number in range(rounds):
            for name in list(self.candidates)[:: 1 if number % 2 == 0 else -1]:
                self.rates.setdefault(name, []).append(self.candidates[name](seconds))
            print(f"{self.title}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)

    def ratio(self, one: str, other: str) -> tuple[float, float, float]:
        """Of the medians; the least and the largest of a round."""
        each = [a / b for a, b in zip(self.rates[one], self.rates[other], strict=True)]
        return statistics.median(self.rates[one]) / statistics.median(self.rates[other]), min(each), max(each)

    def targets(self) -> list[tuple[str, str, str]]:
        """Rows of the table of promises."""
        rows = []
        for one, other, least in self.promises:
            got, low, high = self.ratio(one, other)
            verdict = "PASS" if got >= least else "MISS"
            rows.append((verdict, f"{self.title}: {one} at least {least:g}x {other}",
                         f"{got:.2f}x (rounds {low:.2f} to {high:.2f})"))
        return rows

    def table(self) -> str:
        """Everything that was measured."""
        lines = [f"\n#### {self.title}: per second\n", "| | median | rounds |", "|---|---|---|"]
        for name, rates in self.rates.items():
            lines.append(f"| {name} | {statistics.median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} |")
        return "\n".join(lines) + "\n"


def memory() -> Comparison:
    """Checks in memory."""
    checks = {
        "ratekeeper": c.our_limiter("memory").check,
        "limits": c.limits("memory://"),
        "limits on ratekeeper+memory": c.limits("ratekeeper+memory://"),
    }
    return Comparison("in memory, 1 thread", by_threads(checks, 1), [("ratekeeper", "limits", 12)])


def redis_sync(url: str, threads: int, least: float) -> Comparison:
    """Checks on Redis by threads."""
    checks = {
        "ratekeeper": c.our_limiter(url).check,
        "limits": c.limits(url, max_connections=64),
        "limits on ratekeeper+redis": c.limits(f"ratekeeper+{url}", deadline=c.DEADLINE),
    }
    if threads == 1:
        checks["a plain socket: PING"] = c.ping(url)
    return Comparison(f"Redis, {threads} thread(s)", by_threads(checks, threads), [("ratekeeper", "limits", least)])


def by_threads(checks: dict[str, c.Check], threads: int) -> dict[str, Candidate]:
    """Candidates of checks that block."""
    return {name: functools.partial(c.threads, check, how_many=threads) for name, check in checks.items()}


def redis_async(url: str) -> Comparison:
    """Checks on Redis by tasks."""
    pool = {"implementation": "redispy", "max_connections": 600}
    makers: dict[str, Callable[[], c.AsyncCheck]] = {
        "ratekeeper": lambda: c.our_limiter(url).acheck,
        "limits": lambda: c.limits_async(f"async+{url}", **pool),
        "limits on ratekeeper+redis": lambda: c.limits_async(f"async+ratekeeper+{url}", deadline=c.DEADLINE),
    }
    candidates: dict[str, Candidate] = {name: functools.partial(c.tasks, make) for name, make in makers.items()}
    return Comparison(f"Redis, {c.CALLERS} tasks", candidates, [("ratekeeper", "limits", 5)])


def fastapi(urls: dict[str, str]) -> Comparison:
    """Requests to an endpoint."""
    return Comparison(
        f"FastAPI under uvicorn, {web.CONNECTIONS} connections",
        {kind: functools.partial(web.wrk, url) for kind, url in urls.items()},
        [("ratekeeper, memory", "empty", 0.93), ("ratekeeper, Redis", "slowapi, Redis", 1)],
    )


def django(url: str) -> Comparison:
    """Requests to a view."""
    web.configure_django(url)

    paths = {"no limit": "/plain", "ratekeeper": "/ratekeeper", "django-ratelimit": "/django-ratelimit"}
    return Comparison(
        "Django's handler, Redis",
        {name: functools.partial(web.django_requests, path) for name, path in paths.items()},
        [("ratekeeper", "django-ratelimit", 1)],
    )


def conditions(load: str, rounds: int, seconds: float, quick: bool) -> str:
    """What figures mean nothing without."""
    def said(*command: str) -> str:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    models = re.findall(r"model name\s*: (.+)", pathlib.Path("/proc/cpuinfo").read_text())
    changes = ", with changes in crates/" if said("git", "status", "--porcelain", "--", "crates") else ""
    warning = "; QUICK: it works, but no target can be judged by this" if quick else ""
    facts = {
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "CPU": f"{(models or ['unknown'])[0]}, {len(os.sched_getaffinity(0))} core(s) to use",
        # The rest of the version names the machine.
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "load average before and after": f"{load}; {load_average()}",
        "Python": platform.python_version(),
        "build": "release: opt-level 3, thin LTO, one codegen unit",
        "commit": said("git", "rev-parse", "--short", "HEAD") + changes,
        "packages": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES),
        "rounds": f"{rounds} of {seconds:g} s, candidates in turn{warning}",
    }
    return "".join(f"- {name}: {value}\n" for name, value in facts.items())


def load_average() -> str:
    """How busy the machine is."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def report(facts: str, comparisons: list[Comparison]) -> str:
    """The section as Markdown, targets first."""
    targets = [row for comparison in comparisons for row in comparison.targets()]
    passed = sum(row[0] == "PASS" for row in targets)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in targets)
    tables = "".join(comparison.table() for comparison in comparisons)
    return (
        f"## Python\n\n{facts}\n### Targets\n\n{passed} PASS, {len(targets) - passed} MISS. Ratios are of the medians "
        f"below, all from this run; in brackets the least and the largest of a single round.\n\n"
        f"| | target | measured |\n|---|---|---|\n{rows}\n\n### Throughput\n\nFixed windows on 10,000 keys that are "
        f"never used up. `limits` with redis-py and hiredis, which is what it does fastest; tasks on uvloop. "
        f"A plain socket sleeps until it is answered, as redis-py does; ours looks for up to 100 us before it sleeps.\n{tables}"
    )


def write_section(path: pathlib.Path, section: str, text: str) -> None:
    """Puts text between the marks of its section; what is around them stays."""
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->"
    old = path.read_text() if path.exists() else ""
    if begin not in old:
        old = f"{old.rstrip()}\n\n{begin}{end}\n".lstrip()
    before, rest = old.split(begin, 1)
    path.write_text(f"{before}{begin}{text}{end}{rest.split(end, 1)[1]}")


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true", help="only shows that it works")
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.2) if arguments.quick else (7, 2.0)
    load, server = load_average(), RedisServer("redis-7")
    try:
        with contextlib.ExitStack() as stack:
            comparisons = [
                memory(), redis_sync(server.url, 1, 2.5), redis_sync(server.url, 8, 4), redis_async(server.url),
                django(server.url),
            ]
            for comparison in comparisons:
                comparison.run(rounds, seconds)
            kinds = {
                "empty": "empty", "empty, and two fields that never change": "two-fields",
                "ratekeeper, memory": "ratekeeper-memory", "ratekeeper, Redis": "ratekeeper-redis",
                "slowapi, memory": "slowapi-memory", "slowapi, Redis": "slowapi-redis",
            }
            urls = {name: stack.enter_context(web.fastapi(kind, server.url)) for name, kind in kinds.items()}
            comparisons.append(fastapi(urls))
            comparisons[-1].run(rounds, seconds)
    finally:
        server.close()
    if c.outages():
        raise SystemExit(f"error: {c.outages()} of our checks were decided without their store")
    write_section(arguments.out, "python", report(conditions(load, rounds, seconds, arguments.quick), comparisons))
    for comparison in comparisons:
        for row in comparison.targets():
            print("  ".join(row))


if __name__ == "__main__":
    main()
