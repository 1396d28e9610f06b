"""gevent: calls wait as greenlets do, so that others run meanwhile. Patching is for life, so each is a process of its own."""

from __future__ import annotations

import concurrent.futures

import pytest
from conftest import DEADLINE, Backend
from web.web_servers import program, run_python

BEGIN = """
from gevent import monkey; monkey.patch_all()
import gevent, os, sys
from ratekeeper import Limiter, Rule, Store
store = Store.redis({url!r}, deadline={deadline})
limiter = Limiter(store, Rule("r", "30/1h"))

def paused(milliseconds):
    import redis
    redis.Redis.from_url({url!r}).client_pause(milliseconds)
"""


def run(backend: Backend, code: str) -> list[str]:
    assert backend.server is not None
    return run_python(BEGIN.format(url=backend.server.url, deadline=DEADLINE) + code).splitlines()


def test_other_greenlets_run_while_one_waits(redis_backend: Backend) -> None:
    told = run(redis_backend, """
ticks = []
def tick():
    while True:
        ticks.append(1)
        gevent.sleep(0.01)
ticking = gevent.spawn(tick)
paused(500)
jobs = [gevent.spawn(limiter.check, "a") for _ in range(40)]
gevent.joinall(jobs, timeout=20)
print(sum(job.value.allowed for job in jobs), len(ticks) > 10)
ticking.kill()
""")
    assert told == ["30 True"]


def test_who_gives_up_goes_on(redis_backend: Backend) -> None:
    told = run(redis_backend, """
limiter.check("a", cost=30)
with gevent.Timeout(0.1, False):
    limiter.until_allowed("a", 3600.0)
    print("not ended")
waiting = gevent.spawn(limiter.until_allowed, "a", 3600.0)
gevent.sleep(0.05)
waiting.kill(timeout=5)
print(waiting.dead, limiter.check("a").allowed, limiter.check("b").allowed)
try:
    Store.redis("redis://127.0.0.1:1").ping()
except Exception as error:
    print(type(error).__name__)
""")
    assert told == ["True False True", "StoreError"]


def test_forks_and_threads_of_the_system(redis_backend: Backend) -> None:
    told = run(redis_backend, """
gevent.spawn(limiter.check, "a").join()
child = os.fork()
if child == 0:
    job = gevent.spawn(limiter.check, "a")
    job.join()
    os._exit(0 if job.value.verdicts[0].remaining == 28 else 1)
print(os.waitpid(child, 0)[1])
print(limiter.check("a").verdicts[0].remaining)
print(gevent.get_hub().threadpool.apply(limiter.check, ("a",)).verdicts[0].remaining)
""")
    assert told == ["0", "27", "26"]


def test_without_patches_and_in_the_hub(redis_backend: Backend) -> None:
    told = run(redis_backend, """
seen = []
gevent.get_hub().loop.run_callback(lambda: seen.append(limiter.check("a").allowed))
gevent.sleep(0.05)
while not seen:
    gevent.sleep(0.01)
print(seen)
""".replace("monkey.patch_all()", "pass"))
    assert told == ["[True]"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_site_behind_gunicorn_with_gevent(redis_backend: Backend, workers: int) -> None:
    assert redis_backend.server is not None
    options = ("--worker-class", "gevent", "--workers", str(workers), "--bind", "127.0.0.1:{port}", "django_site:wsgi")
    with program("gunicorn", *options, SITE_STORE=redis_backend.server.url) as client:
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            asked = pool.map(lambda _: client.get("/search", x_project="1:2").status, range(20))
            assert sorted(asked) == [200] * 2 + [429] * 18
