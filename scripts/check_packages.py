#!/usr/bin/env python3
"""Packs the crates that are published, and checks that what is in the packages builds.

`cargo package` would build each of them from its package as well, with a profile of its own and
every dependency again. Here all packages are unpacked into one workspace that has the profiles of
ours, so dependencies that are compiled already are taken as they are. It notices a file that a
package lacks (`include_str!` of one outside the crate), a dependency that only the workspace
has, and a manifest that cannot be published.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Where cargo leaves the packages, and where they are unpacked.
PACKED, UNPACKED = TARGET / "package", TARGET / "unpacked"
MEMBERS = re.compile(r"^members = \[.*\]$", re.MULTILINE)


def published() -> list[dict]:
    """The crates of the workspace that may be published."""
    command = [CARGO, "metadata", "--format-version", "1", "--no-deps", "--locked"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    return [package for package in found["packages"] if package["publish"] is None]


def pack(packages: list[dict]) -> None:
    """Makes the packages of the working tree as it is."""
    named = [word for package in packages for word in ("-p", package["name"])]
    command = [CARGO, "package", "--no-verify", "--allow-dirty", "--locked", "--quiet", *named]
    subprocess.run([*command, "--target-dir", TARGET], cwd=ROOT, check=True)


def unpack(packages: list[dict]) -> None:
    """Makes a workspace of the packages, which find each other there instead of on crates.io."""
    shutil.rmtree(UNPACKED, ignore_errors=True)
    UNPACKED.mkdir(parents=True)
    folders = {package["name"]: f"{package['name']}-{package['version']}" for package in packages}
    for folder in folders.values():
        with tarfile.open(PACKED / f"{folder}.crate") as package:
            package.extractall(UNPACKED, filter="data")
        # One for the workspace is below; that of a package names the others on crates.io.
        (UNPACKED / folder / "Cargo.lock").unlink(missing_ok=True)
        # In a package all files are equally old, so cargo would take the last build for this one's.
        for path in (UNPACKED / folder).rglob("*"):
            os.utime(path)
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest, count = MEMBERS.subn(f"members = {json.dumps(list(folders.values()))}", manifest)
    if count != 1:
        raise SystemExit(f"error: Cargo.toml: got {count} lines `members = [...]`; expected one")
    patches = [f'{name} = {{ path = "{folder}" }}' for name, folder in folders.items()]
    (UNPACKED / "Cargo.toml").write_text("\n".join([manifest, "[patch.crates-io]", *patches, ""]))
    shutil.copyfile(ROOT / "Cargo.lock", UNPACKED / "Cargo.lock")


def main() -> int:
    """Packs, unpacks, checks."""
    packages = published()
    pack(packages)
    unpack(packages)
    command = [CARGO, "check", "--workspace", "--all-features", "--offline", "--quiet", "--target-dir", TARGET]
    result = subprocess.run(command, cwd=UNPACKED)
    if result.returncode != 0:
        print(f"error: the packages do not build by themselves; they are in {UNPACKED}", file=sys.stderr)
        return 1
    for package in packages:
        size = (PACKED / f"{package['name']}-{package['version']}.crate").stat().st_size
        print(f"{package['name']:<18} {package['version']:<8} {size / 1024:6.0f} KiB, builds from its package")
    return 0


if __name__ == "__main__":
    sys.exit(main())
