#!/usr/bin/env python3
"""What the service with a limit for each address costs to build, with us and with tower_governor.

Both services are made, built from nothing in release mode by the same cargo, started, asked until they deny, and
weighed: crates, processor time of the build, size of the binary. `--out docs/benchmarks.md` writes the table there.
The machine should be quiet; crates.io (or its cache) must be in reach.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "lean"
CARGO = os.environ.get("CARGO", "cargo")
# What each may cost at most, in multiples of the other.
FACTOR_MAX = 1.3
START_SECONDS_MAX = 30
MARK = "lean"

COMMON = """
axum = "0.8"
tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
"""
SERVICES = {
    "ratekeeper-web": (
        f'ratekeeper-web = {{ path = "{ROOT}/crates/ratekeeper-web", default-features = false, features = ["axum"] }}\n',
        """
use axum::{Router, routing::get};
use ratekeeper_web::axum::per_ip;
use std::net::SocketAddr;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = Router::new().route("/", get(|| async { "ok" })).layer(per_ip("10/s burst 20")?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
""",
    ),
    "tower_governor": (
        'tower_governor = { version = "0.8", default-features = false, features = ["axum"] }\n',
        """
use axum::{Router, routing::get};
use std::net::SocketAddr;
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = GovernorConfigBuilder::default().per_millisecond(100).burst_size(20).finish().ok_or("no config")?;
    let app = Router::new().route("/", get(|| async { "ok" })).layer(GovernorLayer::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
""",
    ),
}


def service(name: str) -> pathlib.Path:
    """Writes a service; says where."""
    dependency, main = SERVICES[name]
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "src").mkdir(parents=True)
    package = f'[package]\nname = "lean"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n[dependencies]{COMMON}'
    (folder / "Cargo.toml").write_text(package + dependency)
    (folder / "src" / "main.rs").write_text(main)
    return folder


def crates(folder: pathlib.Path) -> int:
    """How many crates are compiled for it, build scripts and macros included, itself not."""
    command = [CARGO, "tree", "-e", "normal,build", "--prefix", "none", "--no-dedupe"]
    lines = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()
    return len({" ".join(line.split()[:2]) for line in lines if line.strip()}) - 1


def build(folder: pathlib.Path) -> tuple[float, int]:
    """Builds it from nothing; says what that took of the processor, and how large the binary is without symbols."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CARGO_PROFILE")}
    environment["CARGO_TARGET_DIR"] = str(folder / "target")
    subprocess.run([CARGO, "fetch"], cwd=folder, env=environment, check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([CARGO, "build", "--release", "--quiet", "--offline"], cwd=folder, env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    binary = folder / "target" / "release" / "lean"
    return seconds, binary.stat().st_size


def status(address: str) -> int:
    """The status of one request."""
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def limits(folder: pathlib.Path) -> None:
    """Asks the service until it denies: what is weighed does work."""
    with subprocess.Popen([folder / "target" / "release" / "lean"], stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            host, port = address.rsplit(":", 1)
            socket.create_connection((host, int(port)), timeout=START_SECONDS_MAX).close()
            deadline = time.monotonic() + START_SECONDS_MAX
            first, denied = status(address), False
            while not denied and time.monotonic() < deadline:
                denied = status(address) == 429
            if first != 200 or not denied:
                sys.exit(f"{folder.name}: got {first} first, denied: {denied}; expected 200, and 429 in the end")
        finally:
            process.kill()


def table(rows: dict[str, tuple[int, float, int]]) -> str:
    """The section of docs/benchmarks.md."""
    (ours, theirs) = rows["ratekeeper-web"], rows["tower_governor"]
    lines = ["| | crates | processor time of the build | binary |", "|---|---:|---:|---:|"]
    for name, (count, seconds, size) in rows.items():
        lines.append(f"| {name} | {count} | {seconds:.0f} s | {size / 1e6:.1f} MB |")
    factors = [one / other for one, other in zip(ours, theirs, strict=True)]
    lines.append("| factor | " + " | ".join(f"{factor:.2f}" for factor in factors) + " |")
    version = subprocess.run([CARGO, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return "\n".join(
        [
            f"<!-- {MARK}: begin -->",
            "## What it adds to a build",
            "",
            "A service on axum with one limit, 10 a second for each address with a burst of 20, built from nothing in release mode: the",
            "crates compiled (with build scripts and macros), the processor time of all of them, and the size of the binary. The other is",
            f"tower_governor's. `make bench-lean` repeats it; {version}.",
            "",
            *lines,
            f"<!-- {MARK}: end -->",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, help="the document to write the table into")
    parser.add_argument("--crates-only", action="store_true", help="count crates, and build nothing")
    given = parser.parse_args()
    rows = {}
    for name in SERVICES:
        folder = service(name)
        count = crates(folder)
        print(f"{name}: {count} crates", flush=True)
        if given.crates_only:
            continue
        seconds, size = build(folder)
        limits(folder)
        print(f"{name}: {seconds:.0f} s of processor time, {size} bytes", flush=True)
        rows[name] = (count, seconds, size)
    if given.crates_only:
        return 0
    section = table(rows)
    print(section)
    if given.out is not None:
        text = given.out.read_text()
        pattern = re.compile(rf"<!-- {MARK}: begin -->.*<!-- {MARK}: end -->", re.DOTALL)
        text = pattern.sub(lambda _: section, text) if pattern.search(text) else f"{text.rstrip()}\n\n{section}\n"
        given.out.write_text(text)
    ours, theirs = rows["ratekeeper-web"], rows["tower_governor"]
    above = [f"{one:.0f} against {other:.0f}" for one, other in zip(ours, theirs, strict=True) if one > FACTOR_MAX * other]
    for what in above:
        print(f"error: more than {FACTOR_MAX} times as much: {what}", file=sys.stderr)
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
