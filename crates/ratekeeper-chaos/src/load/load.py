"""A process of the load that uses the Python package. It ends when its standard input does."""

import asyncio
import collections
import logging
import pathlib
import random
import sys
import threading
import time

import ratekeeper

TICK = 0.005
SETTLED = 0.04


class Control:
    """Control timers: how late this process is by itself, on a machine that does other things as well."""

    def __init__(self) -> None:
        self.noted: collections.deque[tuple[float, float, float]] = collections.deque(maxlen=20_000)

    def note(self, begun: float) -> None:
        """Notes a timer that is over."""
        now = time.monotonic()
        self.noted.append((begun, now, max(0.0, now - begun - TICK)))

    def of_thread(self) -> None:
        """How late the machine runs this process."""
        while True:
            begun = time.monotonic()
            time.sleep(TICK)
            self.note(begun)

    async def of_loop(self) -> None:
        """How late the event loop is."""
        while True:
            begun = time.monotonic()
            await asyncio.sleep(TICK)
            self.note(begun)

    def latest(self, begun: float, end: float) -> float:
        """The latest timer that ran at some time between two instants."""
        return max((late for was, now, late in list(self.noted) if now >= begun and was <= end), default=0.0)


def micros(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * 1e6)


async def calls(services: dict[str, ratekeeper.ServiceLimiter], options: dict[str, str], number: int,
                control: Control, log: list[str], ended: threading.Event) -> None:
    """One caller."""
    chance = random.Random(int(options["seed"]) * 1000 + number)
    total = float(options["total"])
    names = list(services)
    while not ended.is_set():
        name, tenant, address = chance.choice(names), chance.randrange(int(options["tenants"])), chance.randrange(int(options["addresses"]))
        request = ratekeeper.Request("GET", "/", identity={"tenant": f"t{tenant}", "address": f"a{address}"})
        sent, begun = time.time(), time.monotonic()
        decision = await services[name].acheck(request)
        end, answered = time.monotonic(), time.time()
        late = 0.0
        if end - begun > total:
            await asyncio.sleep(SETTLED)
            late = max(0.0, end - begun - total - control.latest(begun, end))
        of_store = decision.origin == "store" and decision.verdicts
        window_end = micros(decision.at + decision.verdicts[0].reset_after) if of_store else 0
        origin = "store" if decision.origin == "store" else "outage"
        log.append(f"{micros(sent)},{micros(answered)},{name},{tenant},{address},{int(decision.allowed)},"
                   f"{origin},{micros(decision.at)},{window_end},{micros(late)}\n")
        await asyncio.sleep(chance.random() * float(options["rest"]))


async def main(options: dict[str, str]) -> None:
    """All callers, until standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), ended.set()), daemon=True).start()
    control, log = Control(), list[str]()
    threading.Thread(target=control.of_thread, daemon=True).start()
    store = ratekeeper.Store.redis(options["target"], deadline=float(options["deadline"]), total=float(options["total"]),
                                   replicas=int(options["replicas"]))
    policies = ratekeeper.Policies()
    for path in sorted(pathlib.Path(options["policies"]).glob("*.toml")):
        policies.install(path.read_text())
    limiter = ratekeeper.PolicyLimiter(store, policies)
    services = {name: limiter.service(name) for name in options["services"].split("+")}
    ticking = asyncio.ensure_future(control.of_loop())
    await asyncio.gather(*(calls(services, options, number, control, log, ended) for number in range(int(options["callers"]))))
    ticking.cancel()
    pathlib.Path(options["log"]).write_text("".join(log))


# What the store logs of outages is no news here.
logging.disable(logging.CRITICAL)
asyncio.run(main(dict(word.split("=", 1) for word in sys.argv[1:])))
