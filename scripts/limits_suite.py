#!/usr/bin/env python3
"""Runs the test suite of `limits` itself over our storages, and counts.

The suite comes with the source distribution of `limits`, in the version of `requirements-web.txt`; it is fetched
into `target/python/limits-suite`. Where its tests name a storage of `limits` that we have a counterpart of, they
get ours, on servers of `make servers`: in memory, Redis, its socket, a cluster, Valkey; sync and async. The tests of other
storages (Memcached, MongoDB, Sentinel with replicas of its own) are left out, and so is what is not about storages.
After `scripts/python_tests.py`, whose environment it uses.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile

import python_tests

SUITE = python_tests.FOLDER / "limits-suite"
FILES = ["tests/test_storage.py", "tests/test_strategy.py", "tests/storage", "tests/aio", "tests/integration"]
# Keys in a server are our own, and limits of zero and of floats are tested where they belong.
LEFT_OUT = {"test_custom_prefix": "asks a server for keys by the names that `limits` gives them"}
INI = "[pytest]\nasyncio_mode = auto\naddopts = -ra -p no:cacheprovider -p no:ddtrace -m 'not benchmark'\n"
# Read before the modules of the suite: what these name is replaced as they are made.
CONFTEST = '''
import atexit
import functools
import sys

import pytest
import redis

sys.path.insert(0, {tests!r})
from servers import ClusterServer, RedisServer

import limits.aio.storage
import limits.storage
from ratekeeper.limits_storage import AsyncRatekeeperStorage, RatekeeperStorage

SERVERS = {{
    "redis": RedisServer("redis-7"), "valkey": RedisServer("valkey-9"),
    "redis+cluster": ClusterServer("redis-7"), "valkey+cluster": ClusterServer("valkey-9"),
}}
for server in SERVERS.values():
    atexit.register(server.close)
SOCKET = SERVERS["redis"].folder / "server.sock"
PATIENCE = {{"deadline": 10.0}}
OURS = {{
    "memory://": ("ratekeeper+memory://", {{}}),
    "redis://localhost:7379": (f"ratekeeper+{{SERVERS['redis'].url}}", PATIENCE),
    "redis+unix:///tmp/limits.redis.sock": (f"ratekeeper+redis+unix://{{SOCKET}}", PATIENCE),
    "redis+cluster://localhost:7001/": (f"ratekeeper+{{SERVERS['redis+cluster'].url}}", PATIENCE),
    "valkey://localhost:12379": (f"ratekeeper+{{SERVERS['valkey'].url}}", PATIENCE),
    "valkey+cluster://localhost:2001/": (f"ratekeeper+{{SERVERS['valkey+cluster'].url}}", PATIENCE),
}}


def translated(value):
    uri, args, *rest = value.values
    is_async, plain = uri.startswith("async+"), uri.removeprefix("async+")
    if plain not in OURS:
        return None
    ours, options = OURS[plain]
    if len(rest) == 2:
        rest[0] = AsyncRatekeeperStorage if is_async else RatekeeperStorage
    uri = f"async+{{ours}}" if is_async else ours
    return pytest.param(uri, dict(options), *rest, id=value.id)


parametrize = pytest.mark.parametrize


def ours(names, values, **options):
    if isinstance(names, str) and names.startswith("uri, args,"):
        values = [found for found in map(translated, values) if found is not None]
    return parametrize(names, values, **options)


pytest.mark.parametrize = ours
limits.storage.MemoryStorage = functools.partial(RatekeeperStorage, "ratekeeper+memory://")
limits.aio.storage.MemoryStorage = functools.partial(AsyncRatekeeperStorage, "async+ratekeeper+memory://")


def emptied(name):
    with redis.Redis(port=SERVERS[name].port) as client:
        client.flushall()
    return client


redis_basic = pytest.fixture(lambda: emptied("redis"), name="redis_basic")
redis_uds = pytest.fixture(lambda: emptied("redis"), name="redis_uds")
redis_cluster = pytest.fixture(lambda: emptied("redis+cluster"), name="redis_cluster")
valkey_basic = pytest.fixture(lambda: emptied("valkey"), name="valkey_basic")
valkey_cluster = pytest.fixture(lambda: emptied("valkey+cluster"), name="valkey_cluster")
'''


def fetched(python: str) -> str:
    """The folder of the suite, fetched if it is not there; its version."""
    wanted = re.search(r"^limits==(.+)$", (python_tests.PACKAGE / "requirements-web.txt").read_text(), re.MULTILINE)
    assert wanted is not None, "requirements-web.txt names the version"
    folder = SUITE / f"limits-{wanted[1]}"
    if not folder.is_dir():
        shutil.rmtree(SUITE, ignore_errors=True)
        options = ("--quiet", "--no-deps", "--no-binary", "limits", "--dest", SUITE)
        python_tests.run("suite of limits", python, "-m", "pip", "download", *options, f"limits=={wanted[1]}")
        with tarfile.open(next(SUITE.glob("*.tar.gz"))) as archive:
            archive.extractall(SUITE, filter="data")
        extra = ("--quiet", "--no-deps", "--target", SUITE / "extra", "pytest-lazy-fixtures==1.4.1")
        python_tests.run("what it needs", python, "-m", "pip", "install", *extra)
    (folder / "tests" / "conftest.py").write_text(CONFTEST.format(tests=str(python_tests.PACKAGE / "tests")))
    (folder / "pytest.ini").write_text(INI)
    return str(folder)


def main(arguments: list[str]) -> int:
    """Runs it; says how many of its tests pass."""
    newest, _ = python_tests.settings()
    folder = fetched(str(newest.tools))
    # What stands there is the library that is installed, not that of the archive.
    environment = python_tests.ENVIRONMENT | {"PYTHONPATH": str(SUITE / "extra"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"RATEKEEPER_SERVERS": os.environ.get("RATEKEEPER_SERVERS", str(python_tests.ROOT / "target" / "servers"))}
    shutil.rmtree(f"{folder}/limits", ignore_errors=True)
    without = " and ".join(f"not {name}" for name in LEFT_OUT)
    command = [str(newest.fresh), "-m", "pytest", "-q", "-k", without, *(arguments or FILES)]
    for name, why in LEFT_OUT.items():
        print(f"left out: {name}, which {why}", flush=True)
    return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
