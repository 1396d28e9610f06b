#!/usr/bin/env python3
"""Lists the public API of the library's crates, or compares it with the lists in `api/`.

The list of a crate is `api/CRATE.txt`: with all features, a line for each public item. Whoever
reviews a change sees there what users of the library will notice.

rustdoc describes a crate as JSON only to nightly compilers; `RUSTC_BOOTSTRAP` makes the stable one
do it. The variable is set for rustdoc alone: build scripts look at it, and cargo would build
every dependency again. Features are those of the whole workspace, as in `make lint`: both share what
is compiled.
"""

import argparse
import difflib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTS = ROOT / "api"
CRATES = ("ratekeeper-core", "ratekeeper", "ratekeeper-http", "ratekeeper-web")
CARGO = os.environ.get("CARGO", "cargo")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def describe() -> None:
    """Makes rustdoc write `doc/CRATE.json` for every crate of the workspace."""
    wrapper = TARGET / "rustdoc-json.sh"
    TARGET.mkdir(parents=True, exist_ok=True)
    real = os.environ.get("RUSTDOC", "rustdoc")
    wrapper.write_text(f'#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    flags = "-Z unstable-options --output-format json --cap-lints allow"
    command = [CARGO, "doc", "--workspace", "--exclude", "ratekeeper-python", "--lib", "--no-deps", "--all-features"]
    command += ["--locked", "--quiet"]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"RUSTDOC": str(wrapper), "RUSTDOCFLAGS": flags})


def listing(crate: str) -> str:
    """The list of one crate."""
    described = TARGET / "doc" / f"{crate.replace('-', '_')}.json"
    command = [CARGO, "run", "--quiet", "--locked", "--manifest-path", LISTS / "Cargo.toml"]
    command += ["--target-dir", TARGET / "api", "--", described]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def difference(crate: str, found: str) -> list[str]:
    """What is in the list and not in the crate, and the other way round."""
    path = LISTS / f"{crate}.txt"
    said = path.read_text() if path.is_file() else ""
    names = (f"api/{crate}.txt", f"{crate} as it is")
    return list(difflib.unified_diff(said.splitlines(), found.splitlines(), *names, lineterm="", n=0))


def main() -> int:
    """Writes the lists, or says how they differ."""
    parser = argparse.ArgumentParser(description="Lists the public API of the library's crates in api/.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a list is not up to date")
    chosen = parser.parse_args()
    describe()
    differences = []
    for crate in CRATES:
        found = listing(crate)
        differences += difference(crate, found)
        if not chosen.check:
            (LISTS / f"{crate}.txt").write_text(found)
        print(f"{crate:<16} {len(found.splitlines()):5} public items")
    if chosen.check and differences:
        print("\n".join(differences))
        print("error: the public API is not the one in api/; if that is meant, `make api` and commit", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
