#!/usr/bin/env python3
"""Sets up the peers of `make bench-redis` that are written in other languages.

`target/peers` gets a Python environment and a `node_modules`, with the versions that
`benches/peers` names. What is there already is left as it is, unless those have changed.
limitador, in Rust, is built with the rest, but its client needs OpenSSL's headers.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benches" / "peers"
FOLDER = ROOT / "target" / "peers"


def run(*command: str | pathlib.Path) -> None:
    """Runs a command in the folder; its output is shown only if it fails."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).rstrip().splitlines()[-15:])
        raise SystemExit(f"error: `{' '.join(map(str, command))}` failed with {result.returncode}:\n{tail}")


def install_python(requirements: pathlib.Path) -> None:
    """An environment with exactly these packages."""
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    run(sys.executable, "-m", "venv", "venv")
    run(FOLDER / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", requirements)


def install_node(_: pathlib.Path) -> None:
    """The packages of the manifest, which has been copied here."""
    if shutil.which("npm") is None:
        raise SystemExit("error: no npm on PATH; install Node 18 or later")
    shutil.rmtree(FOLDER / "node_modules", ignore_errors=True)
    run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")


def ensure(name: str, install) -> None:
    """Installs what a manifest names, unless its copy here says that this was done."""
    source, copy = SOURCES / name, FOLDER / name
    if copy.is_file() and copy.read_text() == source.read_text():
        print(f"{name:<18} as installed before", flush=True)
        return
    # npm reads the copy, so it has to be there first; one that failed must not look done.
    shutil.copyfile(source, copy)
    try:
        install(copy)
    except BaseException:
        copy.unlink()
        raise
    print(f"{name:<18} installed", flush=True)


def install_packages(what: str, *packages: str) -> None:
    """Debian's packages, for want of `what`."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SystemExit(f"error: no {what}; install Debian's packages {' and '.join(packages)}")
    run("apt-get", "update")
    run("apt-get", "install", "-y", "--no-install-recommends", *packages)


def ensure_openssl() -> None:
    """OpenSSL's headers, and the program by which they are found."""
    if shutil.which("pkg-config") and subprocess.run(["pkg-config", "--exists", "openssl"]).returncode == 0:
        return
    install_packages("headers of OpenSSL", "libssl-dev", "pkg-config")


def main() -> None:
    """Sets up everything."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    ensure_openssl()
    ensure("requirements.txt", install_python)
    ensure("package.json", install_node)


if __name__ == "__main__":
    main()
