#!/usr/bin/env python3
"""Checks what the workspace depends on: licences, sources, duplicates, the Rust they ask for, and how many there are.

Reads `cargo metadata`, so it needs nothing but cargo. Advisories need a database
from the network, which a build must not depend on: they are checked where
`cargo audit` and its database are at hand, and said not to be where they are not.
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

# CC0-1.0 (notify) gives a work to the public domain and asks for nothing in return;
# CDLA-Permissive-2.0 is what Mozilla's root certificates, as data, come under.
LICENCES = {"MIT", "Apache-2.0", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Zlib", "MIT-0", "0BSD"}
LICENCES |= {"CC0-1.0", "CDLA-Permissive-2.0"}
# Two incompatible versions of a crate are built twice and do not mix; each that
# cannot be helped stands here with its reason.
DUPLICATES = {
    "base64": "reqwest is ahead of mongodb",
    "core-foundation": "hickory is behind rustls's certificates; macOS only",
    "getrandom": "comes with rand",
    "http": "actix-web 4 stays with 0.2 until its next major version",
    "r-efi": "comes with getrandom; UEFI only",
    "rand": "mongodb is behind proptest and hickory, shuttle (for tests only) behind mongodb",
    "rand_chacha": "comes with rand",
    "rand_core": "comes with rand",
    "syn": "derive macros move to 3 at their own pace; build time only",
    "windows-sys": "console crates move at their own pace; Windows only",
}

# How many crates a program gets with these features, at most, itself and ours included. One more is a decision: change the
# number here with the dependency. What needs none of HEAVY must not get them back through another crate.
LEAN = {
    ("ratekeeper", ""): 23,
    ("ratekeeper", "policy-core"): 35,
    ("ratekeeper-web", "axum"): 59,
    ("ratekeeper-web", "actix"): 119,
    ("ratekeeper-web", "client"): 42,
}
HEAVY = {"antlr4rust", "cel", "regex", "regex-automata", "saphyr-parser", "toml"}


def licensed(expression: str) -> bool:
    """Whether an SPDX expression can be met with the licences we allow."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    position = 0

    def atom() -> bool:
        nonlocal position
        token = tokens[position]
        position += 1
        if token == "(":
            met = either()
            position += 1
            return met
        if position < len(tokens) and tokens[position] == "WITH":
            position += 2
        return token in LICENCES

    def both() -> bool:
        nonlocal position
        met = atom()
        while position < len(tokens) and tokens[position] == "AND":
            position += 1
            met = atom() and met
        return met

    def either() -> bool:
        nonlocal position
        met = both()
        while position < len(tokens) and tokens[position] == "OR":
            position += 1
            met = both() or met
        return met

    return either()


def compatible(version: str) -> str:
    """The part of a version that decides whether two can be one."""
    major, minor, patch = version.split("+")[0].split("-")[0].split(".")
    return major if major != "0" else f"0.{minor}" if minor != "0" else f"0.0.{patch}"


def release(version: str) -> tuple[int, ...]:
    """A version of Rust as numbers; 1.89 is 1.89.0."""
    numbers = [int(number) for number in version.split("-")[0].split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


def too_new(packages: list[dict]) -> list[str]:
    """Dependencies that a Rust as old as we promise to build with could not build."""
    ours = {package["rust_version"] for package in packages if package["source"] is None}
    if None in ours or len(ours) != 1:
        return [f"rust-version: got {', '.join(sorted(map(str, ours)))}; expected one for all of our crates"]
    (promised,) = ours
    return [
        f"{package['name']} {package['version']}: asks for Rust {package['rust_version']}; expected at most {promised}"
        for package in packages
        if package["rust_version"] and release(package["rust_version"]) > release(promised)
    ]


def problems(packages: list[dict]) -> list[str]:
    found = too_new(packages)
    versions = collections.defaultdict(set)
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["source"] is None:
            continue
        versions[package["name"]].add(compatible(package["version"]))
        if not re.match(r"(registry|sparse)\+.*crates\.io", package["source"]):
            found.append(f"{name}: comes from {package['source']}, not from crates.io")
        if not licensed(package["license"] or "none"):
            found.append(f"{name}: licence {package['license']!r}; allowed are {', '.join(sorted(LICENCES))}")
    for name, several in sorted(versions.items()):
        if len(several) > 1 and name not in DUPLICATES:
            found.append(f"{name}: versions {', '.join(sorted(several))} side by side; unify them or say why")
    for name in sorted(DUPLICATES):
        if len(versions[name]) < 2:
            found.append(f"{name}: no longer there twice; take it off the list in {sys.argv[0]}")
    return found


def crates_of(package: str, features: str) -> set[str]:
    """The crates that a program gets with a crate of ours and these features."""
    command = ["cargo", "tree", "-e", "normal", "--prefix", "none", "--format", "{p}", "--locked"]
    command += ["-p", package, "--no-default-features", "--features", features]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {" ".join(line.split()[:2]) for line in lines if line.strip()}


def grown(count: int, most: int, name: str) -> list[str]:
    """What is wrong with so many crates."""
    if count > most:
        return [f"{name}: {count} crates; expected at most {most}. If that is meant, change LEAN in {sys.argv[0]}"]
    return []


def heavy(crates: set[str], name: str) -> list[str]:
    """What a program gets that it does not need."""
    found = sorted(crate for crate in crates if crate.split()[0] in HEAVY)
    return [f"{name}: depends on {crate}; expected without it" for crate in found]


def lean() -> list[str]:
    """Programs that get more than they were meant to."""
    found = []
    for (package, features), most in LEAN.items():
        name = f"{package} with {features or 'no feature'}"
        crates = crates_of(package, features)
        print(f"{name}: {len(crates)} crates")
        found += grown(len(crates), most, name)
        found += heavy(crates, name)
    return found


def advisories() -> list[str]:
    """Known vulnerabilities, as far as there is a database to ask."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    if shutil.which("cargo-audit") is None or not (home / "advisory-db").is_dir():
        print("advisories not checked: no cargo-audit with a database on this machine")
        return []
    result = subprocess.run(["cargo", "audit", "--no-fetch", "--stale", "--deny", "warnings"])
    return [] if result.returncode == 0 else ["cargo audit found advisories, see above"]


def main() -> int:
    command = ["cargo", "metadata", "--format-version", "1", "--all-features", "--locked"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    found = problems(metadata["packages"]) + lean() + advisories()
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    outside = sum(package["source"] is not None for package in metadata["packages"])
    print(f"{outside} dependencies checked: licences, sources, duplicates, Rust versions; {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
