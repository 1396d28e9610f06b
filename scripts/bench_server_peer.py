#!/usr/bin/env python3
"""Builds the peer of `make bench-server`: throttlecrab-server, as crates.io has it.

It goes into `target/peers`, optimised as our own server is. What is there already is left as
it is. Its build needs `protoc`: Debian's package `protobuf-compiler`.
"""

import os
import shutil
import subprocess

from bench_peers import FOLDER, ROOT, install_packages, run

VERSION = "0.4.40"
PROGRAM = FOLDER / "bin" / "throttlecrab-server"


def installed_version() -> str:
    """What the program that is there says it is; empty if there is none."""
    if not PROGRAM.is_file():
        return ""
    return subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def main() -> None:
    """Builds it, unless that was done."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if installed_version() == VERSION:
        print(f"throttlecrab-server {VERSION} as built before", flush=True)
        return
    if shutil.which("protoc") is None:
        install_packages("protoc", "protobuf-compiler")
    # The profile of our own release, so that neither server has the better build.
    os.environ |= {"CARGO_PROFILE_RELEASE_LTO": "thin", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "1"}
    os.environ["CARGO_TARGET_DIR"] = str(ROOT / "target" / "peers" / "build")
    cargo = os.environ.get("CARGO", "cargo")
    run(cargo, "install", "--quiet", "--locked", "--root", FOLDER, f"throttlecrab-server@{VERSION}")
    shutil.rmtree(FOLDER / "build", ignore_errors=True)
    print(f"throttlecrab-server {VERSION} built", flush=True)


if __name__ == "__main__":
    main()
