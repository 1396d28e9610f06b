#!/usr/bin/env python3
"""Checks every crate of the workspace alone, with no feature and with each of its features alone.

A build of the whole workspace gives every crate the features that any other crate asks for, so
it hides a missing dependency, a missing `cfg` and what is unused without a feature. Crates and
features are read from `cargo metadata`: a new one is checked without being listed here.

Words on the command line select crates: `scripts/check_features.py ratekeeper-web`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

CARGO = os.environ.get("CARGO", "cargo")
# The targets that a user of a crate builds. Tests would bring in the features of dev-dependencies.
KINDS = {"lib": "--lib", "cdylib": "--lib", "bin": "--bins"}


def members() -> list[dict]:
    """The crates of the workspace, as cargo describes them."""
    command = [CARGO, "metadata", "--format-version", "1", "--no-deps", "--locked"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]


def selections(package: dict) -> Iterator[tuple[str, list[str]]]:
    """Every selection of features to check: its name, and the arguments for cargo."""
    yield "no feature", ["--no-default-features"]
    for feature in sorted(package["features"]):
        if feature != "default":
            yield feature, ["--no-default-features", "--features", feature]


def check(package: dict, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs clippy on the crate; warnings are errors, because most of them are unused imports."""
    kinds = sorted({KINDS[kind] for target in package["targets"] for kind in target["kind"] if kind in KINDS})
    command = [CARGO, "clippy", "--locked", "--quiet", "-p", package["name"], *kinds, *arguments]
    return subprocess.run([*command, "--", "-D", "warnings"], capture_output=True, text=True)


def main(words: list[str]) -> int:
    """Checks them all, a line for each; a failure does not stop the rest."""
    failed = 0
    for package in members():
        if words and package["name"] not in words:
            continue
        for name, arguments in selections(package):
            start = time.monotonic()
            result = check(package, arguments)
            verdict = "ok" if result.returncode == 0 else "FAILED"
            print(f"{package['name']:<26} {name:<18} {verdict:<6} {time.monotonic() - start:6.1f} s", flush=True)
            if result.returncode != 0:
                failed += 1
                print(result.stderr, file=sys.stderr, flush=True)
    if failed:
        print(f"error: {failed} selections of features do not build alone", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
