#!/usr/bin/env python3
"""Builds the wheel of the Python package and tests it as users have it.

The wheel goes into a fresh environment in `target/python`, with the versions that
`crates/ratekeeper-python/requirements-test.txt` names; the tests never see the source tree's
package. Runs pytest, mypy on the package and stubtest on the native module. Arguments are
for pytest: `scripts/python_tests.py tests/test_limiter.py -k leaky`.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "crates" / "ratekeeper-python"
FOLDER = ROOT / "target" / "python"
REQUIREMENTS = PACKAGE / "requirements-test.txt"
# Never the package of the source tree: it has no native module.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}


def run(what: str, *command: str | pathlib.Path, shown: bool = False, cwd: pathlib.Path = ROOT) -> None:
    """Runs a command, and says how long it took; its output is shown only if it fails."""
    start = time.monotonic()
    result = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=not shown, text=True)
    if result.returncode != 0:
        if not shown:
            print("\n".join((result.stdout + result.stderr).rstrip().splitlines()[-40:]), file=sys.stderr)
        raise SystemExit(f"error: {what} failed with {result.returncode}: {' '.join(map(str, command))}")
    print(f"{what:<24} {time.monotonic() - start:5.1f} s", flush=True)


def tools() -> pathlib.Path:
    """An environment with everything that tests need; made anew only if that has changed."""
    folder, copy = FOLDER / "tools", FOLDER / "tools" / REQUIREMENTS.name
    if not (copy.is_file() and copy.read_text() == REQUIREMENTS.read_text()):
        shutil.rmtree(folder, ignore_errors=True)
        run("tools", sys.executable, "-m", "venv", folder)
        run("requirements", folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS)
        shutil.copyfile(REQUIREMENTS, copy)
    return folder / "bin" / "python"


def build(python: pathlib.Path) -> pathlib.Path:
    """The wheel, in a profile that is built fast."""
    wheels = FOLDER / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    command = [python, "-m", "maturin", "build", "--profile", "wheel-test", "--locked", "--out", wheels]
    run("wheel", *command, "--manifest-path", PACKAGE / "Cargo.toml")
    (wheel,) = wheels.glob("*.whl")
    return wheel


def install(python: pathlib.Path, wheel: pathlib.Path) -> pathlib.Path:
    """A fresh environment with the wheel, and the packages of `tools` by a link."""
    folder = FOLDER / "venv"
    shutil.rmtree(folder, ignore_errors=True)
    run("fresh environment", python, "-m", "venv", "--without-pip", folder)
    run("wheel installed", python, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet",
        "--no-deps", "--no-index", wheel)
    (packages,) = (FOLDER / "tools").glob("lib/python*/site-packages")
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "tools.pth").write_text(f"{packages}\n")
    return folder / "bin" / "python"


def main(arguments: list[str]) -> None:
    """Builds, installs and tests."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    builder = tools()
    python = install(builder, build(builder))
    run("pytest", python, "-m", "pytest", "-q", *(arguments or ["tests"]), shown=True, cwd=PACKAGE)
    if not arguments:
        # Outside of the source tree, so that what is installed is what is checked.
        settings = ("--config-file", PACKAGE / "pyproject.toml")
        run("mypy", python, "-m", "mypy", *settings, "-p", "ratekeeper", cwd=FOLDER)
        run("stubtest", python, "-m", "mypy.stubtest", "ratekeeper._native", cwd=FOLDER)


if __name__ == "__main__":
    main(sys.argv[1:])
