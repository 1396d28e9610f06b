#!/usr/bin/env python3
"""Builds the wheel of the Python package and tests it as users have it.

The wheel goes into fresh environments in `target/python`; the tests never see the package of
the source tree. They run twice: with the newest Python on this machine and the newest web
frameworks (`requirements-web.txt`), and with the oldest of both (`requirements-web-lowest.txt`).
mypy and pyright check the package, and stubtest its stubs against the native module. RATEKEEPER_PYTHONS, such as
"3.10 3.13", names versions without which nothing is tested: what is missing would be left out otherwise.

With arguments, these are for pytest, and only the newest is run:
`scripts/python_tests.py tests/test_limiter.py -k leaky`. With `--install` alone nothing is tested: the
wheel is in `target/python/newest-venv` afterwards.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "crates" / "ratekeeper-python"
FOLDER = ROOT / "target" / "python"
# Programs as users write them, which are checked strictly.
PROGRAMS = [PACKAGE / "tests" / "web" / name for name in ("ported.py", "kit_fastapi.py")]
# The versions of Python that the package is for, as far as they are known.
MINORS = range(10, 16)
# For the wheel of the tests: the profile that shares most with what other tests have built, and
# a little optimised.
QUICK = [
    word
    for name in ("ratekeeper", "ratekeeper-core", "ratekeeper-http", "ratekeeper-python")
    for word in ("--config", f"profile.dev.package.{name}.opt-level=1")
]
# Nothing of the environment may lead to other packages.
HIDDEN = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in HIDDEN}


def run(what: str, *command: str | pathlib.Path, shown: bool = False, cwd: pathlib.Path = ROOT) -> None:
    """Runs a command, and says how long it took; its output is shown only if it fails."""
    start = time.monotonic()
    result = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=not shown, text=True)
    if result.returncode != 0:
        if not shown:
            print("\n".join((result.stdout + result.stderr).rstrip().splitlines()[-60:]), file=sys.stderr)
        raise SystemExit(f"error: {what} failed with {result.returncode}: {' '.join(map(str, command))}")
    print(f"{what:<40} {time.monotonic() - start:5.1f} s", flush=True)


def version_of(python: pathlib.Path | str) -> tuple[int, int] | None:
    """The version of an interpreter, or nothing if it is none that can be used."""
    question = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        result = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=20, env=ENVIRONMENT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = result.stdout.split()
    return (int(words[0]), int(words[1])) if result.returncode == 0 and len(words) == 2 else None


@functools.cache
def pythons() -> dict[tuple[int, int], pathlib.Path]:
    """The interpreters on PATH and those of pyenv, by their version."""
    candidates = [pathlib.Path(sys.executable)]
    candidates += [pathlib.Path(found) for minor in MINORS if (found := shutil.which(f"python3.{minor}"))]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True).stdout.strip()
        candidates += sorted(pathlib.Path(root).glob("versions/3.*/bin/python3"))
    found: dict[tuple[int, int], pathlib.Path] = {}
    for candidate in candidates:
        version = version_of(candidate)
        if version and version[0] == 3 and version[1] in MINORS:
            found.setdefault(version, candidate)
    if not found:
        raise SystemExit("error: no Python 3.10 or later with venv and pip")
    check_required(os.environ.get("RATEKEEPER_PYTHONS", ""), found)
    return found


def check_required(names: str, found: dict[tuple[int, int], pathlib.Path]) -> None:
    """Ends if a version that is to be tested is neither the newest nor the oldest: no other is tested."""
    tested = {min(found), max(found)}
    missing = [name for name in names.split() if tuple(map(int, name.split("."))) not in tested]
    if missing:
        tells = " and ".join(".".join(map(str, version)) for version in sorted(tested))
        raise SystemExit(f"error: RATEKEEPER_PYTHONS: found {tells} to test with; expected {' and '.join(missing)} as well")


@dataclasses.dataclass(frozen=True)
class Setting:
    """An interpreter, and the packages that the tests run with there."""

    name: str
    python: pathlib.Path
    requirements: tuple[str, ...]

    @property
    def tools(self) -> pathlib.Path:
        """The interpreter that has these packages, and not ours."""
        return FOLDER / f"{self.name}-tools" / "bin" / "python"

    @property
    def fresh(self) -> pathlib.Path:
        """The interpreter that has ours, too."""
        return FOLDER / f"{self.name}-venv" / "bin" / "python"

    def install_tools(self) -> None:
        """Installs the packages; anew only if something has changed."""
        folder = self.tools.parent.parent
        texts = [(PACKAGE / name).read_text() for name in self.requirements]
        wanted, stamp = "\n".join([str(self.python), *texts]), folder / "requirements"
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        shutil.rmtree(folder, ignore_errors=True)
        run(f"{self.name}: environment", self.python, "-m", "venv", folder)
        named = [word for name in self.requirements for word in ("-r", PACKAGE / name)]
        run(f"{self.name}: packages", self.tools, "-m", "pip", "install", "--quiet", *named)
        stamp.write_text(wanted)

    def install_wheel(self, wheel: pathlib.Path) -> None:
        """A fresh environment with the wheel, and the packages by way of a path."""
        folder = self.fresh.parent.parent
        shutil.rmtree(folder, ignore_errors=True)
        run(f"{self.name}: fresh environment", self.tools, "-m", "venv", "--without-pip", folder)
        (own,) = folder.glob("lib/python*/site-packages")
        options = ("--quiet", "--no-deps", "--no-index", "--target", own)
        run(f"{self.name}: wheel installed", self.tools, "-m", "pip", "install", *options, wheel)
        (packages,) = self.tools.parent.parent.glob("lib/python*/site-packages")
        (own / "tools.pth").write_text(f"{packages}\n")

    def test(self, arguments: list[str]) -> None:
        """Runs pytest on what is installed."""
        run(f"{self.name}: pytest", self.fresh, "-m", "pytest", "-q", *arguments, shown=True, cwd=PACKAGE)


def settings() -> tuple[Setting, Setting]:
    """The newest of everything, and the oldest."""
    found = pythons()
    newest, oldest = found[max(found)], found[min(found)]
    return (
        Setting("newest", newest, ("requirements-test.txt", "requirements-web.txt")),
        Setting("lowest", oldest, ("requirements-test.txt", "requirements-web-lowest.txt")),
    )


def build(python: pathlib.Path, wheels: pathlib.Path, *options: str) -> pathlib.Path:
    """The wheel, for every Python that the package is for."""
    shutil.rmtree(wheels, ignore_errors=True)
    command = [python, "-m", "maturin", "build", *options, "--locked", "--out", wheels]
    run("wheel", *command, "--interpreter", python, "--manifest-path", PACKAGE / "Cargo.toml")
    (wheel,) = wheels.glob("*.whl")
    return wheel


def check_types(setting: Setting) -> None:
    """Outside of the source tree, so that what is installed is what is checked."""
    options = ("--config-file", PACKAGE / "pyproject.toml", "--python-executable", setting.fresh)
    mypy = (setting.fresh, "-m", "mypy", *options)
    run("mypy", *mypy, "-p", "ratekeeper", cwd=FOLDER)
    run("mypy on programs with it", *mypy, *PROGRAMS, cwd=FOLDER)
    run("stubtest", setting.fresh, "-m", "mypy.stubtest", "ratekeeper._native", cwd=FOLDER)
    check_with_pyright(setting)


def check_with_pyright(setting: Setting) -> None:
    """The package as it is installed, and programs with it."""
    (package,) = setting.fresh.parent.parent.glob("lib/python*/site-packages/ratekeeper")
    settings = FOLDER / "pyrightconfig.json"
    # Other paths than relative ones it leaves out.
    checked = [os.path.relpath(path, FOLDER) for path in (package, *PROGRAMS)]
    settings.write_text(json.dumps({"include": checked, "typeCheckingMode": "standard", "strict": checked[1:2]}))
    # What it downloads once stays in this tree.
    ENVIRONMENT.setdefault("PYRIGHT_PYTHON_CACHE_DIR", str(FOLDER / "pyright"))
    run("pyright", setting.fresh, "-m", "pyright", "--pythonpath", setting.fresh, "--project", settings, cwd=FOLDER)


def main(arguments: list[str]) -> None:
    """Builds, installs and tests."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    newest, lowest = settings()
    newest.install_tools()
    wheel = build(newest.tools, FOLDER / "wheels", *QUICK)
    newest.install_wheel(wheel)
    if arguments == ["--install"]:
        return
    newest.test(arguments or ["tests"])
    if arguments:
        return
    check_types(newest)
    lowest.install_tools()
    lowest.install_wheel(wheel)
    lowest.test(["tests"])


if __name__ == "__main__":
    main(sys.argv[1:])
