#!/usr/bin/env python3
"""Holds the alert rules and the dashboard in `deploy` against a real Prometheus.

First promtool checks the rules and their unit tests (`deploy/prometheus/ratekeeper.tests.yml`). Then a
Prometheus scrapes servers that run: all is quiet while they are healthy and under load; then each fault of
`alert_faults.py` is caused, its alert has to fire for the server that has it, and no other alert for it;
the healthy ones stay quiet throughout. Every expression of the dashboard is evaluated there as well, and has
to have data. Durations in the rules are divided by SCALE, `for` and ranges alike, so that the test takes half
a minute rather than half an hour; thresholds and expressions stay as they are.
"""

import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import alert_faults
from alert_faults import Case
from running import ROOT, SERVERS, Broken, free_port, wait_for

RULES = ROOT / "deploy" / "prometheus" / "ratekeeper.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "ratekeeper.json"
SCALE = 30
INTERVAL = "1s"
# For as long as this, everything is quiet before anything is broken: longer than most alerts wait.
QUIET_SECONDS = 8
FIRE_SECONDS = 150
MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def scaled(rules: str) -> str:
    """The rules with every duration divided by SCALE."""

    def shorter(found: re.Match[str]) -> str:
        before, number, unit, after = found.groups()
        return f"{before}{int(number) * MILLISECONDS[unit] // SCALE}ms{after}"

    rules = re.sub(r"(\n +for: )(\d+)([smhd])(\n)", shorter, rules)
    return re.sub(r"(\[)(\d+)([smhd])(\])", shorter, rules)


def check_rules() -> set[str]:
    """Runs promtool on the rules and their tests; the alerts there are."""
    for command in (["check", "rules", "ratekeeper.rules.yml"], ["test", "rules", "ratekeeper.tests.yml"]):
        line = [str(SERVERS / "promtool"), *command]
        result = subprocess.run(line, cwd=RULES.parent, capture_output=True, text=True)
        if result.returncode != 0:
            raise Broken(f"promtool {' '.join(command)}:\n{result.stdout}{result.stderr}")
    names = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    tested = set(re.findall(r"- name: (\w+)", (RULES.parent / "ratekeeper.tests.yml").read_text()))
    if names != tested:
        raise Broken(f"alerts and their tests differ: {sorted(names ^ tested)}")
    return names


class Prometheus:
    """A Prometheus that scrapes the servers of the test."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "rules.yml").write_text(scaled(RULES.read_text()))
        self.targets([])
        jobs = "".join(
            f"  - job_name: {job}\n    scheme: {scheme}\n    tls_config: {{ insecure_skip_verify: true }}\n"
            f"    file_sd_configs: [{{ files: [targets-{job}.json], refresh_interval: 1s }}]\n"
            for job, scheme in [("ratekeeper", "http"), ("ratekeeper-tls", "https"), ("web", "http")]
        )
        intervals = f"scrape_interval: {INTERVAL}, evaluation_interval: {INTERVAL}, scrape_timeout: {INTERVAL}"
        config = f"global: {{ {intervals} }}\nrule_files: [rules.yml]\nscrape_configs:\n{jobs}"
        (folder / "prometheus.yml").write_text(config)
        flags = [
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen([str(SERVERS / "prometheus"), *flags], stdout=log, stderr=log)
        wait_for(f"Prometheus, see {folder}/prometheus.log", self.is_ready, self.process)

    def targets(self, cases: list[Case]) -> None:
        """What is scraped: each server under the name of its case."""
        jobs: dict[str, list[object]] = {"ratekeeper": [], "ratekeeper-tls": [], "web": []}
        for case in cases:
            job = "ratekeeper-tls" if case.scheme == "https" else case.job
            jobs[job].append({"targets": [f"127.0.0.1:{case.port}"], "labels": {"instance": case.name}})
        for job, groups in jobs.items():
            aside = self.folder / f"{job}.new"
            aside.write_text(json.dumps(groups))
            aside.replace(self.folder / f"targets-{job}.json")

    def is_ready(self) -> bool:
        """Whether it answers."""
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200
        return False

    def get(self, path: str, **query: str) -> object:
        """The data of an answer of its API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as refused:
            raise Broken(f"{path} {query}: {refused.read().decode()}") from refused

    def query(self, expression: str) -> list[dict[str, object]]:
        """The series that an expression has now."""
        return self.get("query", query=expression)["result"]

    def firing(self) -> set[tuple[str, str]]:
        """Alerts that fire, each with the server or service that it is about."""
        found = set()
        for alert in self.get("alerts")["alerts"]:
            labels = alert["labels"]
            if alert["state"] == "firing":
                found.add((labels["alertname"], labels.get("instance") or labels.get("service", "")))
        return found


def unexpected(firing: set[tuple[str, str]], cases: list[Case], is_broken: bool) -> set[tuple[str, str]]:
    """Alerts that should not fire."""
    allowed = set()
    for case in cases:
        if is_broken or case.early or case.fault is None:
            allowed |= {(alert, case.name) for alert in case.alerts | case.also}
    return firing - allowed


def assert_quiet(firing: set[tuple[str, str]], cases: list[Case], is_broken: bool) -> None:
    """Fails if anything fires that should not."""
    wrong = unexpected(firing, cases, is_broken)
    if wrong:
        raise Broken(f"{'with' if is_broken else 'before'} the faults, these fire and should not: {sorted(wrong)}")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of the dashboard, with its panel, as Grafana would ask it."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            asked = target["expr"].replace("$__rate_interval", "10s").replace("$service", ".*")
            if "$" in asked:
                raise Broken(f"{panel['title']}: a variable that the test does not know: {asked}")
            yield panel["title"], asked


def check_panels(prometheus: Prometheus) -> int:
    """Evaluates what the dashboard shows; there has to be data, of metrics that exist."""
    empty = [(title, asked) for title, asked in expressions() if not prometheus.query(asked)]
    if empty:
        raise Broken(f"panels without data: {empty}")
    return len(list(expressions()))


def live(names: set[str], folder: pathlib.Path) -> None:
    """Everything that takes servers."""
    cases = alert_faults.cases()
    caused = {alert for case in cases for alert in case.alerts} | {"RatekeeperAbsent"}
    if names != caused:
        raise Broken(f"alerts without a fault, or the other way round: {sorted(names ^ caused)}")
    prometheus = Prometheus(folder)
    try:
        for case in cases:
            case.start(folder)
        for case in cases:
            case.wait()
        prometheus.targets(cases)
        for case in cases:
            for _ in range(case.threads):
                threading.Thread(target=case.load, daemon=True).start()
        cause(cases, early=True)
        stay_quiet(prometheus, cases)
        cause(cases, early=False)
        wait_until_fired(prometheus, cases)
        panels = check_panels(prometheus)
        print(f"{len(caused) - 1} alerts fired on their fault and on nothing else; {panels} expressions have data", flush=True)
        for case in cases:
            case.end()
        absent = ("RatekeeperAbsent", "")
        wait_for("RatekeeperAbsent, after all servers are gone", lambda: absent in prometheus.firing())
    finally:
        for case in cases:
            case.end()
        prometheus.process.kill()
        prometheus.process.wait()


def cause(cases: list[Case], early: bool) -> None:
    """Causes the faults that are due now."""
    for case in cases:
        if case.wrong:
            raise Broken(f"the load of {case.name} is not understood: {case.wrong}")
        if case.fault and case.early == early:
            case.fault(case)


def stay_quiet(prometheus: Prometheus, cases: list[Case]) -> None:
    """Servers under load and without a fault, long enough for most alerts to fire."""
    wait_until_scraped(prometheus, cases)
    end = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        assert_quiet(prometheus.firing(), cases, is_broken=False)
        time.sleep(0.5)


def wait_until_scraped(prometheus: Prometheus, cases: list[Case]) -> None:
    """Waits until every server has been scraped."""

    def all_up() -> bool:
        up = {series["metric"]["instance"] for series in prometheus.query("up == 1")}
        return up >= {case.name for case in cases}

    wait_for("every server is scraped", all_up)


def wait_until_fired(prometheus: Prometheus, cases: list[Case]) -> None:
    """Waits until every alert has fired for the server that has its fault; no other may meanwhile."""
    waited = {(alert, case.name) for case in cases for alert in case.alerts}
    end = time.monotonic() + FIRE_SECONDS
    fired: set[tuple[str, str]] = set()
    while True:
        firing = prometheus.firing()
        assert_quiet(firing, cases, is_broken=True)
        fired |= firing
        if fired >= waited:
            return
        if time.monotonic() > end:
            raise Broken(f"these do not fire within {FIRE_SECONDS} seconds: {sorted(waited - fired)}")
        time.sleep(0.5)


def main() -> int:
    """Fails with the first thing that is not as it should be."""
    parser = argparse.ArgumentParser(description="Checks the alert rules and the dashboard against a real Prometheus.")
    parser.add_argument("--keep", metavar="DIR", help="put logs there and leave them")
    options = parser.parse_args()
    try:
        names = check_rules()
        print(f"promtool takes {len(names)} alerts, and their unit tests pass", flush=True)
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory()))
            live(names, folder)
    except Broken as broken:
        print(f"error: {broken}", file=sys.stderr)
        return 1
    print("RatekeeperAbsent fires once no server is left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
