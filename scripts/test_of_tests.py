#!/usr/bin/env python3
"""Tests the tests: applies wrong edits one by one, and each must make a test fail.

The edits stand in `wrong_edits.toml`: small mistakes that somebody could make in
the algorithms and the store. They are applied to a copy of the working tree,
never to the tree itself. An edit that no test notices is a missing test; one
that does not compile, or hangs without saying so, is a mistake in the list.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import script_parts

ROOT = pathlib.Path(__file__).resolve().parent.parent
EDITS = ROOT / "scripts" / "wrong_edits.toml"
TARGET = ROOT / "target"
# The copies that are edited, one for each edit that is tried at the same time. Always at the same places.
COPIES = TARGET / "test-of-tests"
# Two builds of one crate keep two cores busy; more would only wait for each other.
AT_ONCE = 2
BUILD_SECONDS = 600
# Ten times what the slower suite takes.
TEST_SECONDS = 30

# What notices an edit. Only the binaries that are fast and tell most, and nothing
# random; what edits seldom touch is optimised, the rest is compiled fast.
SUITES: dict[str, list[str]] = {
    "core": ["-p", "ratekeeper-core", "--lib", "--test", "vectors"],
    "store": [
        *["-p", "ratekeeper", "--lib", "--test", "it"],
        *["--config", "profile.test.package.ratekeeper-core.opt-level=2"],
        *["--config", "profile.test.package.ratekeeper-testkit.opt-level=2"],
        *["--", "--skip", "random_histories"],
    ],
    # Of the whole workspace with all features: so it is the binary of `make test-rust`.
    "script": [
        *["--workspace", "--all-features", "--test", "redis"],
        *["--", "script::decision_tables_on_redis_7", "script::the_same_histories"],
        *["penalties::a_full_server", "penalties::a_penalty_that_cannot_be_read"],
        *["layout::a_changed_set_of_tiers", "layout::tiers_that_went", "layout::a_rule_and_key", "inspect::names"],
        *["lists::what_is_given_back", "lists::places_of_blocks", "overrides_together::"],
    ],
}
# Of the way to a server, what needs none: time is set there.
SUITES["data"] = [
    *["-p", "ratekeeper", "--features", "data-dir", "--lib", "--test", "data_dir"],
    *["--config", "profile.test.package.ratekeeper-core.opt-level=2"],
    *["--config", "profile.test.package.ratekeeper-testkit.opt-level=2"],
    *["--", "shard::unsaved", "operators::", "directory::", "restarts::counters_of", "restarts::what_was_reset"],
]
SUITES["redis"] = [
    *["-p", "ratekeeper", "--features", "redis", "--lib"],
    *["--config", "profile.test.package.ratekeeper-core.opt-level=2"],
    *["--config", "profile.test.package.ratekeeper-testkit.opt-level=2"],
    *["--", "store::redis::", "store::failures::"],
]
SUITES["policy"] = [
    *["-p", "ratekeeper", "--features", "policy", "--test", "policy"],
    *["--config", "profile.test.package.ratekeeper-core.opt-level=2"],
    *["--config", "profile.test.package.ratekeeper-testkit.opt-level=2"],
    *["--", "conditions::", "examples_at_work::", "hostile::", "ids::", "matching::", "modes::", "paths::", "penalties::"],
    *["precedence::", "reload::", "unknown_services::", "wrong::"],
    *["--skip", "ten_thousand"],
]
# Edits of the script are not built: the tests read the one that this variable names. So they run where all tests
# were built, and as these were.
SCRIPT = "RATEKEEPER_SCRIPT"
CARGO = [os.environ.get("CARGO", "cargo"), "test", "--locked", "--quiet"]
ENVIRONMENT = {
    "CARGO_TERM_COLOR": "never",
    "RATEKEEPER_SERVERS": str(ROOT / "target" / "servers"),
    "RUST_BACKTRACE": "0",
}
# Of what is built with an edit in it: fast to build.
BUILT_FAST = {
    "CARGO_PROFILE_TEST_OPT_LEVEL": "0",
    "CARGO_PROFILE_TEST_DEBUG": "0",
    "CARGO_INCREMENTAL": "1",
}
FAILED = re.compile(r"^(?:test )?(\S+) (?:---|\.\.\.) FAILED$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Edit:
    """A mistake: `find`, which `file` has exactly once, becomes `replace`."""

    name: str
    file: str
    find: str
    replace: str
    tests: str
    hangs: bool = False

    def problem(self, workspace: pathlib.Path) -> str | None:
        """Why it cannot be applied, if so."""
        path = workspace / self.file
        if not path.is_file():
            return f"there is no {self.file}"
        if self.tests not in SUITES:
            return f"tests = {self.tests!r}; expected one of {', '.join(SUITES)}"
        if self.find == self.replace:
            return "it changes nothing"
        count = path.read_text().count(self.find)
        return None if count == 1 else f"`find` occurs {count} times in {self.file}; expected once"


@dataclasses.dataclass(frozen=True)
class Run:
    """A command that ended with `code`, or was stopped when its time was over."""

    code: int | None
    output: str


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy of the working tree, and the folder it is built into.

    The first is built into the folder of all tests: dependencies that these have built are taken as they are. Two
    builds in one folder wait for each other, so each further copy has a folder of its own, which begins with the
    dependencies that the first has built.
    """

    workspace: pathlib.Path
    target: pathlib.Path

    @classmethod
    def number(cls, number: int) -> "Copy":
        """The copy with a number, from 0."""
        return cls(COPIES / str(number), TARGET if number == 0 else TARGET / f"test-of-tests-built-{number}")

    def take_dependencies(self) -> None:
        """Takes over what the first copy has built, but for programs and what only its own next build reads."""
        if self.target == TARGET:
            return
        for folder in ("deps", ".fingerprint", "build"):
            to = self.target / "debug" / folder
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(TARGET / "debug" / folder, to, ignore=programs, symlinks=True)


def programs(folder: str, names: list[str]) -> list[str]:
    """Programs among the files of the folder of dependencies: large, and of no use to another build."""
    is_deps = pathlib.Path(folder).name == "deps"
    return [name for name in names if is_deps and pathlib.Path(name).suffix in ("", ".o")]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of an edit: in one word, by what, and what to show if it is bad."""

    word: str
    by: str
    details: str = ""


def load() -> list[Edit]:
    """All edits of the list."""
    with EDITS.open("rb") as file:
        return [Edit(**entry) for entry in tomllib.load(file)["edit"]]


def copy_workspace(to: pathlib.Path) -> None:
    """Copies what git knows or would add, as it is in the working tree.

    The copies are new files to cargo: nothing built from an edit is taken for
    built from them.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    shutil.rmtree(to, ignore_errors=True)
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def run(command: list[str], copy: Copy, seconds: float, **more: str) -> Run:
    """Runs a command until it ends or a test fails; when `seconds` are over, stops it and all it started."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, subprocess.Popen(
        command,
        cwd=copy.workspace,
        env=os.environ | ENVIRONMENT | {"CARGO_TARGET_DIR": str(copy.target), "TMPDIR": folder} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        lines: list[str] = []
        is_late = threading.Event()
        stop = threading.Timer(seconds, lambda: (is_late.set(), os.killpg(process.pid, signal.SIGKILL)))
        stop.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if FAILED.match(line):
                    # Nothing that comes now matters.
                    os.killpg(process.pid, signal.SIGKILL)
                    return Run(1, "".join(lines))
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            stop.cancel()
    return Run(None if is_late.is_set() else process.returncode, "".join(lines))


def tail(output: str, lines: int = 25) -> str:
    """The end of an output, indented."""
    return "\n".join(f"    {line}" for line in output.rstrip().splitlines()[-lines:])


def failed_test(output: str) -> str:
    """The first test that failed, by its name."""
    named = FAILED.search(output)
    return named[1] if named else "the tests did not end by themselves"


# The seconds that each suite may take: ten times what it took unedited, which comes first. A
# machine that is busy is busy then, too.
ALLOWED: dict[str, float] = {}


def try_suite(suite: str, copy: Copy, hangs: bool = False, **more: str) -> Verdict:
    """Builds and runs a suite: noticed if a test fails, missed if none does."""
    command = CARGO + SUITES[suite]
    if suite == "script":
        copy = Copy(ROOT, TARGET)
    else:
        more |= BUILT_FAST
    build = run([*CARGO, "--no-run", *SUITES[suite]], copy, BUILD_SECONDS, **more)
    if build.code != 0:
        return Verdict("ERROR", "does not compile", tail(build.output))
    start, seconds = time.monotonic(), ALLOWED.get(suite, BUILD_SECONDS)
    test = run(command, copy, seconds, **more)
    ALLOWED.setdefault(suite, max(TEST_SECONDS, 10 * (time.monotonic() - start)))
    if test.code is None:
        return Verdict("noticed" if hangs else "ERROR", f"hangs for {seconds:.0f} s")
    if test.code == 0:
        return Verdict("MISSED", f"all tests of `{suite}` pass")
    if hangs:
        return Verdict("ERROR", f"should hang, but {failed_test(test.output)} failed")
    return Verdict("noticed", failed_test(test.output), tail(test.output))


def try_script_edit(edit: Edit, copy: Copy) -> Verdict:
    """Joins the parts of the script with one of them edited, and runs the tests on it."""
    pieces = [
        part.text.replace(edit.find, edit.replace) if part.file == pathlib.Path(edit.file) else part.text
        for part in script_parts.parts(copy.workspace)
    ]
    wrong = copy.workspace / "wrong.lua"
    wrong.write_text("".join(pieces))
    return try_suite(edit.tests, copy, edit.hangs, **{SCRIPT: str(wrong)})


def try_edit(edit: Edit, copy: Copy) -> Verdict:
    """Applies an edit, runs its tests and takes it back."""
    if edit.tests == "script":
        return try_script_edit(edit, copy)
    path = copy.workspace / edit.file
    original = path.read_text()
    path.write_text(original.replace(edit.find, edit.replace))
    try:
        return try_suite(edit.tests, copy, edit.hangs)
    finally:
        path.write_text(original)


def unedited_pass(suites: set[str], copy: Copy) -> bool:
    """Whether the tests pass as they are; says so if not."""
    for suite in sorted(suites):
        start = time.monotonic()
        verdict = try_suite(suite, copy)
        if verdict.word != "MISSED":
            print(f"error: `{suite}` fails without any edit: {verdict.by}\n{verdict.details}", flush=True)
            return False
        print(f"unedited, all tests of `{suite}` pass ({time.monotonic() - start:.1f} s)", flush=True)
    return True


def try_all(edits: list[Edit], copies: list[Copy]) -> int:
    """Tries all edits, as many at a time as there are copies, a line for each; returns how many were not noticed."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(edit: Edit) -> tuple[Verdict, float]:
        copy, start = free.get(), time.monotonic()
        try:
            return try_edit(edit, copy), time.monotonic() - start
        finally:
            free.put(copy)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(copies)) as pool:
        for number, (edit, (verdict, seconds)) in enumerate(zip(edits, pool.map(attempt, edits)), 1):
            counter = f"[{number}/{len(edits)}]"
            print(f"{counter} {verdict.word}  {edit.name}  ({verdict.by}, {seconds:.1f} s)", flush=True)
            if verdict.word != "noticed":
                failed += 1
                print(f"    {edit.file}: {edit.find!r} -> {edit.replace!r}", flush=True)
                if verdict.details:
                    print(verdict.details, flush=True)
    return failed


def prepared_copies(first: Copy) -> list[Copy]:
    """All copies, ready to be edited; the first one has been."""
    others = [Copy.number(number) for number in range(1, AT_ONCE)]
    for copy in others:
        copy_workspace(copy.workspace)
        copy.take_dependencies()
    return [first, *others]


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="Applies wrong edits one by one; each must make a test fail.")
    parser.add_argument("words", nargs="*", help="only edits whose name or file has one of these in it")
    parser.add_argument(
        "--skip", action="append", default=[], choices=SUITES, help="leave out the edits of a suite; may be repeated"
    )
    parser.add_argument(
        "--share", type=int, default=1, metavar="N", help="only one edit in N; another share for each commit"
    )
    chosen = parser.parse_args()
    if chosen.share < 1:
        parser.error(f"--share {chosen.share}; expected 1 or more")
    return chosen


def share_of(edits: list[Edit], parts: int) -> list[Edit]:
    """One of `parts` shares of the edits. The commit says which, so that commits together try all of them."""
    command = ["git", "rev-list", "--count", "HEAD"]
    commits = int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    def share(edit: Edit) -> int:
        return int.from_bytes(hashlib.sha256(edit.name.encode()).digest()[:8], "big") % parts

    return [edit for edit in edits if share(edit) == commits % parts]


def main() -> int:
    """Runs the whole list, or the part the command line selects."""
    chosen = arguments()
    listed = load()
    edits = [edit for edit in listed if edit.tests not in chosen.skip]
    if chosen.words:
        edits = [edit for edit in edits if any(word in edit.name + edit.file for word in chosen.words)]
    edits = share_of(edits, chosen.share)
    first = Copy.number(0)
    copy_workspace(first.workspace)
    # Of all, so that `make test` notices an edit that no longer applies, whichever part tries it.
    problems = [(edit, edit.problem(first.workspace)) for edit in listed]
    wrong = [f"error: edit `{edit.name}`: {problem}" for edit, problem in problems if problem]
    if wrong or not edits:
        print("\n".join(wrong) or "error: no edit is selected", file=sys.stderr)
        return 1
    if not unedited_pass({edit.tests for edit in edits}, first):
        return 1
    failed = try_all(edits, prepared_copies(first))
    print(f"{len(edits) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
