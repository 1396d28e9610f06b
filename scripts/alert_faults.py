"""The servers of `test_alerts.py`: a healthy one on each kind of store, and one for each fault an alert is for.

A fault is caused, never written into a metric: stores are killed or stopped, files are damaged or may not
grow, connections are too many. Each server has its own store, folder and load.
"""

import contextlib
import dataclasses
import http.client
import itertools
import json
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable

from running import BINARY, SERVERS, free_port, listens, wait_for

WRONG = (400, 404, 405, 415, 422)
# Stores that are to answer do so, however busy the machine is.
PATIENT = ("--store-deadline", "20000")
# Pauses of a store that is stopped and continued: long and short ones against a deadline.
STOPPED_SECONDS, RUNNING_SECONDS = 0.15, 0.05
# Within a deadline of 500 ms and far beyond it, and until its breaker is closed again.
LATE_SECONDS, AWAY_SECONDS, BACK_SECONDS = 0.1, 2, 3

RULE = """service = "{service}"
[[rules]]
name = "{rule}"
keys = "ip:{{client.ip}}"
quota = "1000000/s"
"""


@dataclasses.dataclass
class Case:
    """A server with the fault that it is to have, and the alerts that tell of it.

    `alerts` have to fire, `also` may: what follows from the fault on this or that machine. Nothing else may.
    """

    name: str
    fault: Callable[["Case"], None] | None = None
    alerts: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    policy: str | None = None
    flags: tuple[str, ...] = ()
    # On how many servers its store is.
    redis: int = 0
    # What is asked again and again, before and after the fault.
    ask: Callable[["Case"], tuple[str, object]] | None = None
    # Callers at once.
    threads: int = 1
    # The fault is caused at once, because its load alone is too much, or the alert waits long.
    early: bool = False
    job: str = "ratekeeper"
    scheme: str = "http"
    # The fault is there from the beginning.
    before: Callable[["Case"], None] | None = None
    # The command that starts the server, around its own.
    wrapped: tuple[str, ...] = ()
    folder: pathlib.Path = pathlib.Path()
    port: int = 0
    processes: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)
    # What the server said of a call that was not understood, which would cause no fault.
    wrong: str = ""
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    numbers: itertools.count = dataclasses.field(default_factory=itertools.count)
    held: list[socket.socket] = dataclasses.field(default_factory=list)

    def path(self, name: str) -> pathlib.Path:
        """A file of this case."""
        return self.folder / name

    def run(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        """Starts a process whose output is in the folder."""
        with open(self.path(f"{name}.log"), "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self.processes.append(process)
        return process

    @property
    def server(self) -> subprocess.Popen[bytes]:
        """The server of the case, which is started last."""
        return self.processes[-1]

    @property
    def store(self) -> subprocess.Popen[bytes]:
        """Its Redis, which is started first."""
        return self.processes[0]

    def start(self, folder: pathlib.Path) -> None:
        """Starts the store and the server, and waits for neither."""
        self.folder = folder / self.name
        self.folder.mkdir()
        (self.folder / "policies").mkdir()
        self.path("policies/policy.toml").write_text(self.policy or RULE.format(service=self.name, rule="r"))
        flags = [flag.format(folder=self.folder) for flag in self.flags]
        if "--policy" not in flags:
            flags += ["--policy", str(self.path("policies"))]
        ports = [self.start_redis() for _ in range(self.redis)]
        if ports:
            flags += ["--store", ",".join(f"redis://127.0.0.1:{port}" for port in ports)]
        if self.before:
            self.before(self)
        self.port = free_port()
        command = [str(BINARY), "serve", "--http", f"127.0.0.1:{self.port}", "--grpc", "off"]
        command += ["--threads", "1", "--log", "warn"]
        self.run([*self.wrapped, *command, *flags], "server")

    def start_redis(self) -> int:
        """Starts a Redis of its store; its port."""
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        store = self.run([str(SERVERS / "redis-7"), *options], f"store-{port}")
        wait_for(f"the store of {self.name}", lambda: listens(port), store)
        return port

    def wait(self) -> None:
        """Waits until the server answers."""
        wait_for(f"the server {self.name}, see {self.path('server.log')}", lambda: listens(self.port), self.server)

    def connection(self) -> http.client.HTTPConnection:
        """A connection to the server."""
        if self.scheme == "https":
            insecure = ssl._create_unverified_context()
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=insecure)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def load(self) -> None:
        """Asks until it is told to stop; a server that is not there is asked again."""
        connection = self.connection()
        while not self.stop.wait(0.02):
            path, body = self.ask(self) if self.ask else ("/v1/check", {"client": "192.0.2.1"})
            try:
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
                answer = connection.getresponse()
                answered = answer.read()
                if answer.status in WRONG or re.search(rb'"status":(400|422)', answered):
                    self.wrong = f"{answer.status} {answered[:500]!r}"
            except (OSError, http.client.HTTPException):
                connection.close()
        connection.close()

    def end(self) -> None:
        """Ends its processes, also those that are stopped."""
        self.stop.set()
        for process in self.processes:
            process.kill()
            process.wait()
        for connection in self.held:
            connection.close()


def kill_store(case: Case) -> None:
    """The store dies."""
    case.store.kill()
    case.store.wait()


def kill_server(case: Case) -> None:
    """The server dies."""
    case.server.kill()
    case.server.wait()


def pausing(case: Case) -> None:
    """The store is stopped and continued, as one on a machine that is far too busy."""

    def pause() -> None:
        while not case.stop.is_set() and case.store.poll() is None:
            case.store.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            case.store.send_signal(signal.SIGCONT)
            time.sleep(RUNNING_SECONDS)

    threading.Thread(target=pause, daemon=True).start()


def one_stops_after_the_other(case: Case) -> None:
    """Of two servers of a store, one is late to deny, and then the other, which has charged, is told to give back and does not answer."""
    charged, denies = case.processes[:2]

    def stop() -> None:
        while not case.stop.is_set():
            denies.send_signal(signal.SIGSTOP)
            time.sleep(LATE_SECONDS)
            charged.send_signal(signal.SIGSTOP)
            denies.send_signal(signal.SIGCONT)
            time.sleep(AWAY_SECONDS)
            charged.send_signal(signal.SIGCONT)
            time.sleep(BACK_SECONDS)

    threading.Thread(target=stop, daemon=True).start()


def wrong_policy(case: Case) -> None:
    """A policy is saved with a mistake in it."""
    case.path("policies/policy.toml").write_text(f'service = "{case.name}"\nqouta = 1\n')


def policy_of_nobody(case: Case) -> None:
    """A policy is added that does not say whose it is."""
    case.path("policies/other.toml").write_text("this is no policy")


def take_policy_away(case: Case) -> None:
    """One of two policies is deleted."""
    case.path("policies/policy.toml").unlink()


def another_policy(case: Case) -> None:
    """A second policy, which keeps the server ready."""
    case.path("policies/other.toml").write_text(RULE.format(service="other", rule="r"))


def folder_goes(case: Case) -> None:
    """The folder of policies is gone, as when a mount is lost."""
    case.path("policies").rename(case.path("elsewhere"))


def crowd(case: Case) -> None:
    """More connections than there is room for, opened again as they are closed."""

    def connect() -> None:
        while not case.stop.wait(0.05):
            for held in case.held[:-40]:
                held.close()
            del case.held[:-40]
            with contextlib.suppress(OSError):
                held = socket.create_connection(("127.0.0.1", case.port), timeout=5)
                held.sendall(b"POST /v1/check HTTP/1.1\r\nhost: x\r\n")
                case.held.append(held)

    threading.Thread(target=connect, daemon=True).start()


def certificate(case: Case) -> None:
    """A certificate of one day."""
    names = ["-keyout", str(case.path("key.pem")), "-out", str(case.path("cert.pem"))]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"]
    command = [str(SERVERS / "openssl"), "req", "-x509", "-nodes", "-days", "1", *kind, *names]
    subprocess.run(command, check=True, capture_output=True)


def damage(case: Case) -> None:
    """What a server left in its data directory is overwritten while none runs."""
    case.port = free_port()
    command = [str(BINARY), "serve", "--http", f"127.0.0.1:{case.port}", "--grpc", "off"]
    command += ["--data", str(case.path("data"))]
    made = case.run(command, "before")
    case.wait()
    made.terminate()
    made.wait()
    file = case.path("data/ratekeeper.redb")
    file.write_bytes(b"no database at all " * (file.stat().st_size // 19))


def secret(case: Case) -> None:
    """What notices are signed with."""
    case.path("secret").write_text("a secret of the test, long enough")


def one_used_up(_: Case) -> tuple[str, object]:
    """A key that has used all of its quota, and goes on asking."""
    return "/v1/limit", {"charges": [{"key": "k", "quota": "1/h fixed_window"}]}


def across(case: Case) -> tuple[str, object]:
    """Checks of two keys, often on two servers: one has room, and soon the other has none."""

    def check(number: int) -> dict[str, object]:
        free = {"key": f"free{number % 7}", "quota": "1000000/s"}
        full = {"key": f"full{number % 5}", "name": "full", "quota": "1/h fixed_window"}
        return {"charges": [free, full]}

    return "/v1/limit/batch", {"checks": [check(next(case.numbers)) for _ in range(20)]}


def of_service(case: Case) -> tuple[str, object]:
    """A request of one of several services."""
    return "/v1/check", {"service": case.name, "client": "192.0.2.1"}


def no_key(_: Case) -> tuple[str, object]:
    """A request without what the rule counts by."""
    return "/v1/check/batch", {"checks": [{}] * 100}


def no_value(_: Case) -> tuple[str, object]:
    """A request on which the condition of the rule has no value."""
    return "/v1/check/batch", {"checks": [{"client": "192.0.2.1", "headers": {"x-size": "large"}}] * 100}


def many_ids(case: Case) -> tuple[str, object]:
    """New ids, more than there is room for."""
    charge = {"key": "k", "quota": "1000000/s"}
    return "/v1/limit/batch", {
        "checks": [{"id": f"{next(case.numbers)}", "charges": [charge]} for _ in range(100)]
    }


def exhausted_keys(case: Case) -> tuple[str, object]:
    """New keys, each at its limit at once, more than there is room for."""
    quota = "1/h fixed_window"
    return "/v1/limit/batch", {
        "checks": [{"charges": [{"key": f"k{next(case.numbers)}", "quota": quota}]} for _ in range(100)]
    }


def long_keys(case: Case) -> tuple[str, object]:
    """New keys that are worth keeping, more than the disk has room for."""
    quota = "5/d"
    return "/v1/limit/batch", {
        "checks": [{"charges": [{"key": f"{next(case.numbers):0200}", "quota": quota}]} for _ in range(100)]
    }


DENYING = RULE.format(service="store-gone-denying", rule="r") + 'on_outage = "deny"\n'
BY_USER = 'service = "no-keys"\n[[rules]]\nname = "r"\nkeys = "user:{identity.user}"\nquota = "5/s"\n'
BY_SIZE = (
    'service = "rule-failing"\n[[rules]]\nname = "r"\nkeys = "ip:{client.ip}"\nquota = "1000000/s"\n'
    "when = \"int(header['x-size']) > 5\"\n"
)
OPEN = frozenset({"RatekeeperFailedOpen", "RatekeeperFailingOpen"})
AWAY = frozenset({"RatekeeperStoreNotReady", "RatekeeperStoreBreakerOpen"})
LATE = frozenset({"RatekeeperStoreTimeouts", "RatekeeperSlow", "RatekeeperStoreOverloaded"})


def alerts(*names: str) -> frozenset[str]:
    """Alerts by what follows our own name in theirs."""
    return frozenset(f"Ratekeeper{name}" for name in names)


def cases() -> list[Case]:
    """All servers of the test."""
    return [
        Case("healthy-memory"),
        Case("healthy-redis", redis=1, flags=PATIENT),
        Case("healthy-data", flags=("--data", "{folder}/data")),
        Case("dead", kill_server, alerts("Down")),
        # Found by what it showed before, not by the name of its job.
        Case("dead-elsewhere", kill_server, alerts("Down"), job="web"),
        Case("store-gone-denying", kill_store, AWAY | alerts("NotReady"), LATE, DENYING, redis=1, flags=PATIENT),
        Case("store-gone", kill_store, AWAY | OPEN, LATE, redis=1, flags=PATIENT),
        Case("store-slow", pausing, alerts("Slow"), redis=1, flags=PATIENT, early=True),
        Case("store-late", pausing, alerts("StoreTimeouts"), AWAY | OPEN | LATE, redis=1),
        Case(
            "store-busy",
            pausing,
            alerts("StoreOverloaded"),
            OPEN | LATE | AWAY,
            flags=(*PATIENT, "--store-queue", "1"),
            redis=1,
            threads=12,
            early=True,
        ),
        Case(
            "refunds-lost",
            one_stops_after_the_other,
            alerts("StoreLeavesCharges"),
            OPEN | LATE | AWAY,
            flags=("--store-deadline", "500"),
            redis=2,
            ask=across,
            threads=2,
            early=True,
        ),
        Case(
            "notices-lost",
            None,
            alerts("NoticesFail"),
            # Nobody listens there.
            flags=("--notify-url", "http://127.0.0.1:1/", "--notify-secret-file", "{folder}/secret"),
            ask=one_used_up,
            before=secret,
        ),
        Case("ids-full", None, alerts("StoreFull"), AWAY | OPEN, flags=("--memory-ids", "1000"), ask=many_ids),
        Case("keys-full", None, alerts("StoreForgetsLimits"), flags=("--memory-keys", "1000"), ask=exhausted_keys),
        Case("policy-wrong", wrong_policy, alerts("PolicyRefused")),
        Case("policy-of-nobody", policy_of_nobody, alerts("PolicyUnreadable")),
        Case("policy-gone", take_policy_away, alerts("PolicyGone"), before=another_policy, ask=of_service),
        Case("policies-lost", folder_goes, alerts("PolicySourceFailing")),
        Case("no-keys", None, alerts("RuleWithoutKeys"), policy=BY_USER, ask=no_key),
        Case("rule-failing", None, alerts("RuleFailing"), policy=BY_SIZE, ask=no_value),
        Case("crowded", crowd, alerts("ConnectionsRefused"), flags=("--connections-max", "16")),
        Case(
            "certificate",
            None,
            alerts("CertificateEnds"),
            flags=("--tls-cert", "{folder}/cert.pem", "--tls-key", "{folder}/key.pem"),
            before=certificate,
            scheme="https",
        ),
        Case(
            "disk-full",
            None,
            alerts("DataFails"),
            flags=("--data", "{folder}/data"),
            ask=long_keys,
            # A file that may not grow is what a full disk is.
            wrapped=("bash", "-c", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"", "bash"),
        ),
        Case("data-damaged", None, alerts("DataDamaged"), flags=("--data", "{folder}/data"), before=damage),
    ]
