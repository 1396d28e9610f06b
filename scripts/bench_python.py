#!/usr/bin/env python3
"""Builds the Python package as it is released and compares it with its peers.

Everything goes into an environment in `target/bench-python`, with the versions that
`benches/python/requirements.txt` names. Arguments are for `benches/python/bench.py`:
`scripts/bench_python.py --out docs/benchmarks.md --quick`. wrk must be on PATH.
"""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benches" / "python"
FOLDER = ROOT / "target" / "bench-python"
PYTHON = FOLDER / "venv" / "bin" / "python"


def run(*command: str | pathlib.Path) -> None:
    """Runs a command; its output is shown only if it fails."""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).rstrip().splitlines()[-30:])
        raise SystemExit(f"error: `{' '.join(map(str, command))}` failed with {result.returncode}:\n{tail}")


def install_peers() -> None:
    """The peers, anew only if their versions have changed."""
    source, copy = SOURCES / "requirements.txt", FOLDER / "requirements.txt"
    if copy.is_file() and copy.read_text() == source.read_text():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    run(sys.executable, "-m", "venv", FOLDER / "venv")
    run(PYTHON, "-m", "pip", "install", "--quiet", "-r", source)
    shutil.copyfile(source, copy)


def install_ours() -> None:
    """The package, as it is released."""
    wheels, manifest = FOLDER / "wheels", ROOT / "crates" / "ratekeeper-python" / "Cargo.toml"
    shutil.rmtree(wheels, ignore_errors=True)
    run(PYTHON, "-m", "maturin", "build", "--release", "--locked", "--out", wheels, "--manifest-path", manifest)
    (wheel,) = wheels.glob("*.whl")
    run(PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel)


def main() -> None:
    """Sets everything up, and compares."""
    if shutil.which("wrk") is None:
        raise SystemExit("error: no wrk on PATH; install Debian's package wrk")
    install_peers()
    install_ours()
    command = [PYTHON, SOURCES / "bench.py", *(sys.argv[1:] or ["--out", ROOT / "docs" / "benchmarks.md"])]
    raise SystemExit(subprocess.run(command, cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
