#!/usr/bin/env python3
"""Builds the wheel of the Python package for release, into `target/wheels`.

One wheel is for every Python from 3.10 on, on this kind of machine. It is as portable as the machine's C
library is old: its name says for which (`manylinux_2_34` needs glibc 2.34). For older ones, build it
in a container of theirs, or with `maturin build --release --zig --compatibility manylinux_2_28`.

Nothing in it tells where it was built.
"""

import os
import pathlib
import zipfile

import python_tests

HOME = pathlib.Path.home()
CARGO = pathlib.Path(os.environ.get("CARGO_HOME", HOME / ".cargo"))
# What stands in panics instead of these folders; of several that fit, the last counts.
PLACES = {HOME: "home", CARGO: "cargo", python_tests.ROOT: "ratekeeper"}


def hide_places() -> None:
    """Has the compiler write other names for the folders of this machine."""
    given = python_tests.ENVIRONMENT.get("RUSTFLAGS", "")
    hidden = [f"--remap-path-prefix={folder}={name}" for folder, name in PLACES.items()]
    python_tests.ENVIRONMENT["RUSTFLAGS"] = " ".join([given, *hidden]).strip()


def check(wheel: pathlib.Path) -> None:
    """Fails if a folder of this machine is named anywhere in the wheel."""
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            found = [str(folder) for folder in PLACES if f"{folder}/".encode() in files.read(name)]
            if found:
                raise SystemExit(f"error: {name} in {wheel.name} names {', '.join(found)}")


def main() -> None:
    """Builds it with the same tools that the tests use."""
    python_tests.FOLDER.mkdir(parents=True, exist_ok=True)
    newest, _ = python_tests.settings()
    newest.install_tools()
    hide_places()
    wheel = python_tests.build(newest.tools, python_tests.ROOT / "target" / "wheels", "--release")
    check(wheel)
    print(wheel.relative_to(python_tests.ROOT))


if __name__ == "__main__":
    main()
