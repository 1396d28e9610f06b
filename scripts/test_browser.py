#!/usr/bin/env python3
"""Holds the dashboard in a real Chromium: sets one up, and a Python to drive it, and runs `browser_tests.py` there.

Chromium is Debian's, installed as root if there is none on PATH; without one, this fails. What drives it is in a
virtual environment in `target/browser`, which is kept until its requirements change.
"""

import pathlib
import subprocess
import sys

import servers
from running import BINARY, ROOT

FOLDER = ROOT / "target" / "browser"
# axe-playwright-python has axe-core in it.
REQUIREMENTS = ["playwright==1.65.2", "axe-playwright-python==0.1.8"]
CHROMIUM = servers.Part("chromium", r"^Chromium (\d+\.\S+)", servers.from_debian("chromium", "chromium", "chromium-browser"))


def python() -> pathlib.Path:
    """The Python of the environment, which has what is required afterwards."""
    environment, done = FOLDER / "venv", FOLDER / "requirements"
    wanted = "\n".join([sys.version, *REQUIREMENTS])
    if not done.exists() or done.read_text() != wanted:
        FOLDER.mkdir(parents=True, exist_ok=True)
        servers.run(sys.executable, "-m", "venv", "--clear", str(environment))
        servers.run(str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *REQUIREMENTS)
        done.write_text(wanted)
    return environment / "bin" / "python"


def main() -> int:
    """Sets everything up, and runs the tests."""
    servers.FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        print(f"Chromium {servers.ensure(CHROMIUM)}", flush=True)
        driver = python()
    except servers.Missing as reason:
        print(f"error: the dashboard is tested in a real Chromium: {reason}", file=sys.stderr)
        return 1
    if not BINARY.exists():
        print(f"error: there is no {BINARY.relative_to(ROOT)}; `make test-rust` builds it", file=sys.stderr)
        return 1
    return subprocess.run([driver, str(ROOT / "scripts" / "browser_tests.py"), *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
