#!/usr/bin/env python3
"""Counts the instructions of each path of a decision, and compares them with a baseline.

Instructions are counted by callgrind, so a busy machine changes nothing: what differs by more than a
percent is another program. The baseline is `benches/instructions.toml`; a path that takes more than 3 %
above it is a failure, one that takes less is told. It holds for the versions of rustc, valgrind, Python and
Redis that it names, and with others it is a failure to be asked at all: record a new baseline.

    scripts/instructions.py            compares the tree as it is with the baseline
    scripts/instructions.py --record   makes the baseline of the commit that the work began with: HEAD if
                                       there are changes that are not committed, else the parent of HEAD. It
                                       is checked out aside, built, and measured with the paths as
                                       they are in this tree, or with its own where these do not compile
    scripts/instructions.py --accept   compares, and makes the tree as it is the new baseline: for a change
                                       whose cost is meant, or to keep a gain

The paths are in `benches/instructions`. The first build takes minutes, a run without one about three.
"""

import argparse
import contextlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator

import bench_peers
import servers
from instruction_counts import Counts, beyond_pairs, compare, other_versions

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE = ROOT / "benches" / "instructions.toml"
SOURCES = pathlib.Path("benches") / "instructions"
# Also of what is measured aside: what does not differ is built once.
TARGET = ROOT / "target" / "instructions"
CARGO = os.environ.get("CARGO", "cargo")
# As it is released, but without debug information, which valgrind would read each time.
PROFILE = {"CARGO_PROFILE_RELEASE_DEBUG": "false", "CARGO_INCREMENTAL": "0"}
# Else PyO3 looks for one on PATH, and is built again with each PATH.
PYTHON = {"PYO3_PYTHON": sys.executable}
PROFILE_NAME = "release (thin LTO, one codegen unit), without debug information"
# The functions inside of which instructions are counted: of our program, and of the server. The rest of a
# server is left out: it looks at the clock as often as the machine gives it time to.
COUNTED = "*count_instructions_of*"
COUNTED_IN_SERVER = "evalShaCommand"
START_SECONDS = 180

# How many steps are counted: enough that what is random in a process (seeds of hashes, a timer) is far
# below a percent.
IN_PROCESS = {
    "memory-admitted": 50_000,
    "memory-data-dir": 50_000,
    "memory-denied": 50_000,
    "memory-three-quotas": 30_000,
    "limiter": 50_000,
    "policy": 20_000,
    "redis-batch": 2_000,
    "http-fields": 20_000,
    "web-layer": 10_000,
    "axum-bare": 5_000,
    "axum-allowed": 5_000,
    "axum-denied": 5_000,
    "server-limit": 20_000,
}
IN_SERVER = {
    "script-short-way": 2_000,
    "script-four-tiers": 1_000,
    "script-mixed-tiers": 1_000,
    "script-override": 1_000,
}
# Of Python the start is counted, too: it is taken away by asking twice as much.
IN_PYTHON = {"python-check": 100_000}
# Those that need a server, but are not measured in it.
WITH_SERVER = {"redis-batch"}


def run(*command: str | pathlib.Path, cwd: pathlib.Path = ROOT, **environment: str) -> str:
    """Runs a command and returns what it prints; if it fails, that is shown."""
    result = subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).rstrip().splitlines()[-30:])
        raise SystemExit(f"error: `{' '.join(map(str, command))}` failed with {result.returncode}:\n{tail}")
    return result.stdout.strip()


def versions() -> dict[str, str]:
    """What counts depend on beside our code."""
    avx2 = "avx2" in pathlib.Path("/proc/cpuinfo").read_text()
    return {
        "rustc": run("rustc", "--version").removeprefix("rustc "),
        "profile": PROFILE_NAME,
        "valgrind": run("valgrind", "--version").removeprefix("valgrind-"),
        "python": f"{platform.python_version()} ({platform.python_compiler()})",
        "redis": servers.ensure(server_part("redis-7")),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine() + (" with AVX2" if avx2 else ""),
    }


def server_part(name: str) -> servers.Part:
    """A part of what `make servers` sets up."""
    return next(part for part in servers.PARTS if part.name == name)


def set_up() -> None:
    """What has to be there before anything is built."""
    servers.FOLDER.mkdir(parents=True, exist_ok=True)
    bench_peers.FOLDER.mkdir(parents=True, exist_ok=True)
    if shutil.which("valgrind") is None:
        bench_peers.install_packages("valgrind on PATH", "valgrind")
    for name in ("redis-7", "redis-cli"):
        servers.ensure(server_part(name))


class Built:
    """A tree that was built: the program with the paths, and the Python package as its wheel has it."""

    def __init__(self, tree: pathlib.Path, *options: str) -> None:
        forget_other_trees(tree)
        packages = ("-p", "ratekeeper-instructions", "-p", "ratekeeper-python")
        command = (CARGO, "build", "--release", "--quiet", *options, *packages)
        run(*command, cwd=tree, CARGO_TARGET_DIR=str(TARGET), **PROFILE, **PYTHON)
        self.program = TARGET / "release" / "instructions"
        self.python = TARGET / "python"
        self.check = tree / SOURCES / "check.py"
        shutil.rmtree(self.python, ignore_errors=True)
        shutil.copytree(tree / "crates" / "ratekeeper-python" / "python", self.python)
        shutil.copyfile(TARGET / "release" / "lib_native.so", self.python / "ratekeeper" / "_native.abi3.so")

    def measured(self) -> dict[str, float]:
        """Instructions for a step of each path."""
        paths = [
            *((name, steps, self.in_process) for name, steps in IN_PROCESS.items()),
            *((name, steps, self.in_server) for name, steps in IN_SERVER.items()),
            *((name, steps, self.in_python) for name, steps in IN_PYTHON.items()),
        ]
        counts = {}
        for name, steps, count in paths:
            start = time.monotonic()
            counts[name] = round(count(name, steps), 1)
            print(f"{name:<20} {counts[name]:>12,.1f}  ({time.monotonic() - start:.0f} s)", flush=True)
        return counts

    def in_process(self, name: str, steps: int) -> float:
        """Of the program, which says itself what is to be counted."""
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            needed = name in WITH_SERVER
            url = [stack.enter_context(server(folder))] if needed else []
            command = [*callgrind(folder / "out", f"--toggle-collect={COUNTED}"), self.program, name, str(steps), *url]
            run_plainly(command)
            return total(folder / "out") / steps

    def in_server(self, name: str, steps: int) -> float:
        """Of a server that runs the script; the program is its client."""
        with tempfile.TemporaryDirectory() as name_of_folder:
            folder = pathlib.Path(name_of_folder)
            around = callgrind(folder / "out", f"--toggle-collect={COUNTED_IN_SERVER}")
            with server(folder, around) as url:
                run_plainly([self.program, name, str(steps), url])
            return total(folder / "out") / steps

    def in_python(self, _: str, steps: int) -> float:
        """Of an interpreter with the package."""

        def counted(steps: int) -> int:
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "out"
                command = [*callgrind(out), sys.executable, "-S", "-s", self.check, str(steps)]
                run_plainly(command, PYTHONPATH=str(self.python), PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
                return total(out)

        return (counted(2 * steps) - counted(steps)) / steps


def forget_other_trees(tree: pathlib.Path) -> None:
    """Has cargo build our own crates anew if the last tree was another one.

    It knows them by their place in the workspace, and whether they are up to date by the age of their files: those
    of a younger tree would pass for this one's.
    """
    stamp = TARGET / "tree"
    if not stamp.is_file() or stamp.read_text() != str(tree):
        for known in (TARGET / "release" / ".fingerprint").glob("ratekeeper*"):
            shutil.rmtree(known)
    TARGET.mkdir(parents=True, exist_ok=True)
    stamp.write_text(str(tree))


def callgrind(out: pathlib.Path, *options: str) -> list[str]:
    """What stands before a command whose instructions are to be counted."""
    return ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", *options]


def plain_environment(**more: str) -> dict[str, str]:
    """Nothing that differs between those who run this: it would be on the stack of what is measured."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C"} | more


def run_plainly(command: list[str | pathlib.Path], **environment: str) -> None:
    """Runs what is measured."""
    result = subprocess.run(command, env=plain_environment(**environment), capture_output=True, text=True)
    if result.returncode != 0:
        said = result.stdout + result.stderr
        raise SystemExit(f"error: `{' '.join(map(str, command))}` failed with {result.returncode}:\n{said}")


def total(out: pathlib.Path) -> int:
    """All instructions that callgrind counted."""
    found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(errors="replace"), re.MULTILINE)
    if found is None or int(found[1]) == 0:
        raise SystemExit("error: callgrind counted nothing: is the function still called as its pattern says?")
    return int(found[1])


@contextlib.contextmanager
def server(folder: pathlib.Path, around: list[str] | None = None) -> Iterator[str]:
    """A server on a socket in a folder, and its URL. It does nothing by itself that could be counted."""
    socket, cli = folder / "s", server_part("redis-cli").path()
    quiet = ["--save", "", "--appendonly", "no", "--hz", "1", "--dynamic-hz", "no", "--io-threads", "1"]
    quiet += ["--activerehashing", "no", "--jemalloc-bg-thread", "no", "--daemonize", "no"]
    where = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder)]
    command = [*(around or []), str(server_part("redis-7").path()), *where, *quiet]
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, env=plain_environment(), stdout=file, stderr=file)
    try:
        end = time.monotonic() + START_SECONDS
        while subprocess.run([cli, "-s", socket, "PING"], capture_output=True, text=True).stdout.strip() != "PONG":
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"error: the server did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield f"redis+unix://{socket}"
        subprocess.run([cli, "-s", socket, "SHUTDOWN", "NOSAVE"], capture_output=True)
        process.wait(timeout=START_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def commit() -> str:
    """What this tree is, as far as git can say."""
    changed = " with changes" if run("git", "status", "--porcelain", "--untracked-files=no") else ""
    return run("git", "rev-parse", "--short=12", "HEAD") + changed


def record(revision: str | None) -> Counts:
    """Measures another commit, in a folder of its own that is gone afterwards."""
    if revision is None:
        changed = run("git", "status", "--porcelain", "--untracked-files=no")
        revision = "HEAD" if changed else "HEAD^"
    revision = run("git", "rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        run("git", "worktree", "add", "--detach", tree, revision)
        try:
            print(f"Building {revision} aside.", flush=True)
            return Counts(revision, versions(), built_aside(tree).measured())
        finally:
            run("git", "worktree", "remove", "--force", tree)


def built_aside(tree: pathlib.Path) -> Built:
    """Another commit with the paths of this tree, or with its own if these need what it has not."""
    own = tree / SOURCES
    kept = own.with_name("instructions-of-its-own")
    if own.exists():
        own.rename(kept)
    shutil.copytree(ROOT / SOURCES, own)
    try:
        return Built(tree)
    except SystemExit:
        if not kept.exists():
            raise
    print("The paths of this tree do not compile there; those of the commit itself are taken.", flush=True)
    shutil.rmtree(own)
    kept.rename(own)
    return Built(tree, "--locked")


def self_test() -> int:
    """Tests the comparison itself."""
    suite = unittest.defaultTestLoader.discover(str(ROOT / "scripts"), pattern="test_instruction_counts.py")
    return 0 if unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful() else 1


def main() -> int:
    """Compares or records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--record", nargs="?", const="", metavar="COMMIT", help="make the baseline of an earlier commit")
    what.add_argument("--accept", action="store_true", help="make this tree the baseline")
    what.add_argument("--self-test", action="store_true", help="test the comparison, and count nothing")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    set_up()
    if arguments.record is not None:
        record(arguments.record or None).write(BASELINE)
        print(f"{BASELINE.relative_to(ROOT)} is new.")
        return 0
    here = versions()
    baseline = Counts.read(BASELINE) if BASELINE.is_file() else Counts("none", {}, {})
    others = other_versions(baseline, here)
    if others and not arguments.accept:
        print("\n".join(others), file=sys.stderr)
        print("error: record a new baseline: make bench-instructions RECORD=1", file=sys.stderr)
        return 1
    now = Built(ROOT, "--locked").measured()
    table, passed = compare(baseline.paths, now)
    print(f"\nInstructions for a step; the baseline is {baseline.commit}.\n\n{table}\n")
    if arguments.accept:
        Counts(commit(), here, now).write(BASELINE)
        print(f"Accepted: {BASELINE.relative_to(ROOT)} is new.")
        return 0
    beyond = beyond_pairs(now)
    for line in beyond:
        print(f"error: {line}", file=sys.stderr)
    if not passed:
        print("error: what stands in capitals; if it is meant: make bench-instructions ACCEPT=1", file=sys.stderr)
    return 0 if passed and not beyond else 1


if __name__ == "__main__":
    sys.exit(main())
