"""The dashboard as people use it: each function that begins with `test_` in a context of its own.

Servers are real, one on a Redis. Run by `test_browser.py`; words on the command line choose tests whose names contain one.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from running import BINARY, SERVERS, Broken, free_port, listens, wait_for

TOKEN = "operator-of-the-browser-tests"
PATIENCE_MS = 30_000
# Every store answers in time, however busy the machine is.
PATIENT = {"RATEKEEPER_STORE_DEADLINE": "20000"}
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]
CHECKS = ("/v1/check", "/v1/limit", "/v1/check/batch", "/v1/limit/batch")
PHONE = {"width": 360, "height": 780}
POLICY = """service = "shop"
[[rules]]
name = "per-user"
keys = "user:{identity.user}"
quota = "5/h fixed_window"
plans = { paid = "50/h fixed_window" }

[[rules]]
name = "watched"
keys = "user:{identity.user}"
quota = "2/h fixed_window"
mode = "monitor"
"""


class Served:
    """A server, with what it is asked beside the browser."""

    def __init__(self, folder: pathlib.Path, *flags: str, policy: str | None = POLICY, redis: int = 0) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.port = free_port()
        self.flags = list(flags)
        self.stores: list[subprocess.Popen[bytes]] = []
        if policy:
            (self.folder / "policy.toml").write_text(policy)
            self.flags += ["--policy", str(self.folder / "policy.toml")]
        ports = [self.start_redis() for _ in range(redis)]
        if ports:
            self.flags += ["--store", ",".join(f"redis://127.0.0.1:{port}" for port in ports)]
        self.start()

    def start_redis(self) -> int:
        """Starts a Redis of its store; its port."""
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        store = self.run([str(SERVERS / "redis-7"), *options], f"store-{port}")
        self.stores.append(store)
        wait_for("the store", lambda: listens(port), store)
        return port

    def run(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        """Starts a process whose output is in the folder."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("RATEKEEPER_")}
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=own | PATIENT | {"RATEKEEPER_ADMIN_TOKEN": TOKEN},
            )

    def start(self) -> None:
        """Starts the server, also again, and waits until it answers."""
        address = f"127.0.0.1:{self.port}"
        self.server = self.run([str(BINARY), "serve", "--http", address, "--grpc", "off", *self.flags], "server")
        wait_for(f"the server, see {self.folder}", lambda: listens(self.port), self.server)

    def end(self) -> None:
        """Ends the server at once."""
        self.server.kill()
        self.server.wait()

    def end_all(self) -> None:
        """Ends everything."""
        self.end()
        for store in self.stores:
            store.kill()
            store.wait()

    @property
    def page(self) -> str:
        """Where the dashboard is."""
        return f"http://127.0.0.1:{self.port}/dashboard"

    def ask(self, path: str, body: object = None, token: str | None = None) -> tuple[int, str]:
        """The status and text of an answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if body is not None:
            request.data = json.dumps(body).encode()
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def check(self, user: str, times: int = 1, plan: str | None = None) -> list[int]:
        """What becomes of requests of a user."""
        body = {"identity": {"user": user, "plan": plan}}
        return [self.ask("/v1/check", body)[0] for _ in range(times)]

    def load(self) -> None:
        """Something of everything."""
        self.check("ann", 8)
        self.check("bob", 3, plan="paid")
        for _ in range(4):
            self.ask("/v1/limit", {"charges": [{"key": "k", "name": "reports", "quota": "2/h"}]})

    def switches(self) -> dict[str, list[dict[str, object]]]:
        """What operators have set."""
        return json.loads(self.ask("/v1/switches", token=TOKEN)[1])

    def overrides(self) -> list[dict[str, object]]:
        """The overrides there are."""
        return json.loads(self.ask("/v1/overrides/list", {}, token=TOKEN)[1])["overrides"]


class Setting:
    """What a test has: a browser, a folder, servers that end with it."""

    def __init__(self, browser: Browser, folder: pathlib.Path) -> None:
        self.browser, self.folder = browser, folder
        self.stack = contextlib.ExitStack()
        self.wrong: list[str] = []

    def serve(self, *flags: str, **options: object) -> Served:
        """A server for this test."""
        served = Served(self.folder, *flags, **options)  # type: ignore[arg-type]
        self.stack.callback(served.end_all)
        return served

    def open(self, served: Served, token: str | None = TOKEN, **options: object) -> Page:
        """A page in a context of its own, signed in unless there is no token."""
        context = self.browser.new_context(**options)  # type: ignore[arg-type]
        self.stack.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda line: self.wrong.append(line.text) if "Content Security Policy" in line.text else None)
        page.goto(served.page)
        if token:
            sign_in(page, token)
            expect(page.locator("#board")).to_be_visible()
        return page


def sign_in(page: Page, token: str) -> None:
    """Types a token and sends it."""
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def number(page: Page, selector: str) -> int:
    """The number that an element shows."""
    return int(page.locator(selector).get_attribute("data-value") or "-1")


def metrics(served: Served) -> list[tuple[str, dict[str, str], float]]:
    """What /metrics shows: names, labels and values."""
    found = []
    for line in served.ask("/metrics")[1].splitlines():
        if match := re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line):
            labels = {name: json.loads(f'"{value}"') for name, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")}
            found.append((match[1], labels, float(match[3])))
    return found


def differences(page: Page, served: Served) -> list[str]:
    """Numbers on the page that are not what /metrics has."""
    told = metrics(served)
    script = "[...document.querySelectorAll('[data-metric]')].map(e => [e.dataset.metric, e.dataset.labels, e.dataset.value, e.textContent])"
    shown = page.evaluate(script)
    if len(shown) < 20:
        raise Broken(f"there should be more numbers on the page: {shown}")
    wrong = []
    for names, wanted, value, text in shown:
        labels = json.loads(wanted)

        def is_meant(own: dict[str, str], labels: dict[str, object] = labels) -> bool:
            return all(own.get(name) in (of if isinstance(of, list) else [of]) for name, of in labels.items())

        values = [number for name, own, number in told if name in names.split(" ") and is_meant(own)]
        digits = re.sub(r"\D", "", text)
        if not values and float(value) != 0 or sum(values) != float(value) or float(digits) != float(value):
            wrong.append(f"{names} {wanted}: {text} for {value} on the page, {values} at /metrics")
    return wrong


def rates(page: Page) -> list[str]:
    """All that the page shows per second: its tiles, its rules, the newest row of the table of the chart."""
    places = "#rate-allowed, #rate-denied, #rate-over, #rules tbody td:nth-child(5), #chart-rows tr:first-child td"
    return page.evaluate("places => [...document.querySelectorAll(places)].map(e => e.textContent)", places)


def latency(served: Served, share: float) -> str:
    """Within which time a share of all checks was answered, as the page says it, by the buckets of /metrics."""
    ends: dict[float, float] = {}
    for name, labels, value in metrics(served):
        if name == "ratekeeper_request_seconds_bucket" and labels["endpoint"] in CHECKS:
            end = float(labels["le"].replace("+Inf", "inf"))
            ends[end] = ends.get(end, 0) + value
    reached = min(end for end, count in ends.items() if count >= max(ends.values()) * share)
    if reached == float("inf"):
        return "> 1 s"
    return f"≤ {reached * 1e6:g} µs" if reached < 0.001 else f"≤ {reached * 1e3:g} ms" if reached < 1 else f"≤ {reached:g} s"


def until(what: str, holds: Callable[[], bool]) -> None:
    """Polls until something holds."""
    wait_for(what, holds)


def audit(page: Page, what: str) -> None:
    """Asks axe, and whether the page is wider than its window."""
    results = Axe().run(page)
    if results.violations_count:
        raise Broken(f"{what}: {results.generate_report()}")
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if wide > 0:
        raise Broken(f"{what}: the page is {wide} pixels too wide")


def test_a_token_is_asked_for_and_a_wrong_one_is_told(on: Setting) -> None:
    served = on.serve()
    page = on.open(served, token=None)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.locator("#board")).to_be_hidden()
    expect(page.locator("#token-error")).to_be_empty()
    sign_in(page, "a-token-that-is-not-known")
    expect(page.get_by_role("alert")).to_contain_text("the token is not known")
    expect(page.get_by_label("Token")).to_be_focused()
    expect(page.locator("#board")).to_be_hidden()
    sign_in(page, TOKEN)
    expect(page.locator("#board")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("Live")
    assert TOKEN not in page.url and page.evaluate("localStorage.length + document.cookie.length") == 0
    page.reload()
    expect(page.locator("#board")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_numbers_are_those_of_metrics_once_traffic_has_stopped(on: Setting) -> None:
    for redis in (0, 1):
        served = on.serve(redis=redis)
        page = on.open(served)
        until("the page has a point to start from", lambda p=page: "–" not in rates(p))
        served.load()
        until("rates are shown", lambda p=page: set(rates(p)) != {"0"})
        until("all numbers are those of /metrics", lambda s=served, p=page: not differences(p, s))
        until("nothing happens any more", lambda p=page: set(rates(p)) == {"0"})
        # What a page sees first is all there was.
        page.reload()
        shown = [page.locator(f"#latency-{which}") for which in ("middle", "most")]
        for element, share in zip(shown, (0.5, 0.99), strict=True):
            expect(element).to_have_text(latency(served, share))
        assert (number(page, "#sum-allowed"), number(page, "#sum-denied"), number(page, "#sum-over")) == (14, 5, 7)
        expect(page.locator("#store-kind")).to_contain_text("Redis" if redis else "memory")
        row = page.locator("#rules tbody tr", has_text="shop/per-user").filter(has_text="paid")
        expect(row).to_contain_text("50/h fixed_window")
        expect(page.locator("#policies")).to_contain_text("shop")
        expect(page.locator("#hot")).to_contain_text("user:ann")
        expect(page.locator("#near")).to_contain_text("0 of 5")


def test_it_is_live(on: Setting) -> None:
    served = on.serve()
    page = on.open(served)
    before = number(page, "#sum-allowed")
    served.check("cyd", 2)
    until("what was allowed is shown", lambda: number(page, "#sum-allowed") == before + 4)
    expect(page.locator("#chart svg path.allowed")).to_have_attribute("d", re.compile("M.*L"))
    page.locator("summary").click()
    expect(page.locator("#chart-rows tr").first).to_be_visible()
    page.locator("#chart-of").select_option("shop/per-user (default)")


def test_it_begins_with_what_was_before_it_was_opened(on: Setting) -> None:
    served = on.serve()
    served.check("ann", 8)

    def kept() -> list[int]:
        points = json.loads(served.ask("/v1/dashboard/history", token=TOKEN)[1])["points"]
        return [point["decisions"]["totals"].get("allowed", 0) for point in points]

    until("the server has kept it", lambda: kept()[-1] > 0)
    page = on.open(served)
    shown = "[...document.querySelectorAll('#chart-rows tr')].map(row => row.cells[1].textContent)"
    until("it is in the table of the chart", lambda: any(rate not in ("0", "–") for rate in page.evaluate(shown)))
    page.locator("#chart-of").select_option("shop/per-user (default)")
    until("and of its rule", lambda: any(rate not in ("0", "–") for rate in page.evaluate(shown)))


def test_modes_are_changed(on: Setting) -> None:
    served = on.serve()
    page = on.open(served)
    form = page.get_by_role("form", name="Change a mode")
    form.locator("[name=rule]").select_option("shop/per-user")
    form.locator("[name=mode]").select_option("monitor")
    form.locator("[name=for]").fill("1h")
    form.get_by_role("button", name="Set mode").click()
    expect(form.get_by_role("status")).to_contain_text("shop/per-user is monitor now")
    row = page.locator("#switches tbody tr", has_text="mode monitor")
    expect(row).to_contain_text("59 min")
    [mode] = served.switches()["modes"]
    assert (mode["rule"], mode["mode"]) == ("shop/per-user", "monitor")
    until("it holds", lambda: served.check("dan", 9)[-1] == 200)
    form.locator("[name=for]").fill("a while")
    form.get_by_role("button", name="Set mode").click()
    expect(form.get_by_role("status")).to_contain_text("Nothing was changed: for")
    row.get_by_role("button").click()
    expect(page.locator("#switches")).to_contain_text("Nothing is set")
    assert served.switches()["modes"] == []


def test_limits_are_lifted_in_an_emergency_once_that_is_meant(on: Setting) -> None:
    served = on.serve()
    page = on.open(served)
    assert served.check("eve", 6)[-1] == 429
    form = page.get_by_role("form", name="Emergency")
    form.locator("[name=rule]").select_option("*")
    declare = form.get_by_role("button", name="Declare emergency")
    declare.click()
    dialog = page.get_by_role("dialog", name="Are you sure?")
    expect(dialog).to_contain_text("everything passes every rule of every service")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    declare.click()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert served.switches()["emergencies"] == []
    declare.click()
    dialog.get_by_role("button", name="Yes, do it").click()
    expect(page.locator("#switches")).to_contain_text("lifted: everything passes")
    until("it holds", lambda: served.check("eve")[0] == 200)
    page.locator("#switches").get_by_role("button").click()
    expect(page.locator("#switches")).to_contain_text("Nothing is set")
    until("limits hold again", lambda: served.check("eve")[0] == 429)


def test_overrides_are_set_and_deleted(on: Setting) -> None:
    for redis in (0, 1):
        served = on.serve(redis=redis)
        page = on.open(served)
        form = page.get_by_role("form", name="Set an override")
        for label, value in {"Rule or endpoint": "shop/per-user", "Organisation": "7", "Project": "42", "Limit": "500", "For": "2h", "Reason": "launch"}.items():
            form.get_by_label(label).fill(value)
        form.get_by_role("button", name="Set override").click()
        row = page.locator("#overrides tbody tr", has_text="launch")
        expect(row).to_contain_text("500")
        expect(row).to_contain_text("1 h 59 min")
        [override] = served.overrides()
        assert (override["organisation"], override["project"], override["limit"]) == ("7", "42", 500)
        row.get_by_role("button").click()
        expect(page.locator("#overrides")).to_contain_text("No override is set")
        assert served.overrides() == []


def test_what_a_key_says_is_text(on: Setting) -> None:
    served = on.serve()
    page = on.open(served)
    evil = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"
    for _ in range(3):
        served.ask("/v1/limit", {"charges": [{"key": evil, "quota": "1/h", "name": "<b>bold</b>"}]})
    about = {"endpoint": "shop/per-user", "organisation": "7", "limit": 5, "reason": evil}
    assert served.ask("/v1/overrides/set", about, token=TOKEN)[0] == 200
    expect(page.locator("#hot tbody th").first).to_have_text(evil)
    expect(page.locator("#near tbody th").first).to_have_text(evil)
    expect(page.locator("#overrides")).to_contain_text(evil)
    expect(page.locator("#rules")).to_contain_text("<b>bold</b>")
    page.locator("#chart-of").select_option("charges: <b>bold</b>")
    assert page.evaluate("window.hacked === undefined && document.querySelectorAll('img, td b, body script').length === 0")
    # Were it markup after all, the policy of the page would not run it.
    page.evaluate("document.body.insertAdjacentHTML('beforeend', `<img src=x onerror='window.hacked = 1'>`)")
    page.evaluate("{ const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s); }")
    assert page.evaluate("window.hacked === undefined")
    assert on.wrong and all("Content Security Policy" in line for line in on.wrong)
    on.wrong.clear()


def test_a_server_that_is_gone_is_told_and_so_is_its_return(on: Setting) -> None:
    served = on.serve()
    page = on.open(served)
    served.check("ann", 2)
    until("it is shown", lambda: number(page, "#sum-allowed") == 4)
    served.end()
    expect(page.get_by_text("Disconnected, trying again")).to_be_visible()
    expect(page.locator("#board")).to_be_visible()
    form = page.get_by_role("form", name="Change a mode")
    form.get_by_role("button").click()
    expect(form.get_by_role("status")).to_contain_text("Nothing was changed")
    served.start()
    expect(page.locator("#connection")).to_have_text("Live")
    until("it counts from nothing", lambda: number(page, "#sum-allowed") == 0)
    served.check("ann")
    until("it is live again", lambda: number(page, "#sum-allowed") == 2)


def test_a_store_that_is_gone_is_told(on: Setting) -> None:
    served = on.serve("--store-deadline", "500", redis=1)
    page = on.open(served)
    expect(page.locator("#store-state")).to_have_text("answers")
    served.stores[0].kill()
    expect(page.locator("#alarms")).to_contain_text("The store takes no charges")
    until("requests go on without it", lambda: served.check("ann") == [200] and number(page, "#outage-allowed") > 0)
    until("all numbers are those of /metrics", lambda: not [one for one in differences(page, served) if "store_" not in one])


def test_the_servers_of_a_store_and_its_breaker_are_shown(on: Setting) -> None:
    served = on.serve("--store-deadline", "500", redis=2)
    page = on.open(served)

    def fact(name: str) -> Locator:
        return page.locator("#store div").filter(has=page.get_by_text(name, exact=True)).locator("dd")

    expect(fact("Servers that take charges")).to_have_text("2")
    expect(fact("Breaker")).to_have_text("closed")
    expect(fact("Away")).to_have_count(0)
    served.stores[1].kill()
    expect(fact("Servers that take charges")).to_have_text("1")
    expect(fact("Servers that do not")).to_have_text("1")
    expect(fact("Away")).to_have_text(served.flags[-1].split(",")[1])
    expect(fact("Breaker")).to_have_text(re.compile("open|probing"))
    expect(page.locator("#store-state")).to_have_text(re.compile("breaker (open|probing)"))
    expect(page.locator("#alarms")).to_contain_text("The store takes no charges")
    until("its servers are those of /metrics", lambda: not [one for one in differences(page, served) if "store_nodes" in one])


def test_everything_works_by_keyboard(on: Setting) -> None:
    served = on.serve()
    page = on.open(served, token=None)
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#board")).to_be_visible()

    def tab_to(what: str, script: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            if page.evaluate("document.activeElement !== document.body") and outline == "none":
                raise Broken(f"the focus is not visible on {page.evaluate('document.activeElement.outerHTML')[:200]}")
            if page.evaluate(f"document.activeElement.matches({json.dumps(script)})"):
                return
        raise Broken(f"no Tab leads to {what}")

    tab_to("the rules of modes", "#mode-form [name=rule]")
    page.keyboard.type("shop/watched")
    tab_to("modes", "#mode-form [name=mode]")
    page.keyboard.type("off")
    tab_to("the button", "#mode-form button")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator("#switches")).to_contain_text("mode off")
    assert served.switches()["modes"][0]["rule"] == "shop/watched"
    tab_to("clearing it", "#switches button")
    page.keyboard.press("Enter")
    expect(page.locator("#switches")).to_contain_text("Nothing is set")
    page.reload()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()


def test_a_token_that_only_reads_changes_nothing(on: Setting) -> None:
    hashed = subprocess.run([BINARY, "token", "new", "--name", "reads", "--role", "read"], capture_output=True, text=True, check=True).stdout
    tokens = on.folder / "tokens"
    tokens.write_text(re.search(r"(?m)^line\s+(.*)$", hashed)[1] + "\n")  # type: ignore[index]
    token = re.search(r"(?m)^token\s+(\S+)", hashed)[1]  # type: ignore[index]
    served = on.serve("--tokens", str(tokens))
    page = on.open(served, token=token)
    form = page.get_by_role("form", name="Change a mode")
    form.get_by_role("button", name="Set mode").click()
    expect(form.get_by_role("status")).to_contain_text("has the role read; expected operate")
    expect(page.locator("#board")).to_be_visible()


def test_the_demo_load_is_offered_where_the_settings_say_so(on: Setting) -> None:
    page = on.open(on.serve())
    expect(page.locator("#demo")).to_be_hidden()
    page = on.open(on.serve("--demo-load", policy=None))
    page.get_by_role("button", name="Start demo load").click()
    expect(page.get_by_role("button", name=re.compile(r"Stop demo load \(\d+ s left\)"))).to_be_visible()
    until("there is something to see", lambda: number(page, "#sum-denied") > 0 and number(page, "#sum-allowed") > 50)
    expect(page.locator("#hot")).to_contain_text("user:eve")
    page.get_by_role("button", name=re.compile("Stop demo load")).click()
    expect(page.get_by_role("button", name="Start demo load")).to_be_visible()


def test_it_is_accessible(on: Setting) -> None:
    served = on.serve("--demo-load", policy=None)
    for _ in range(20):
        served.check("ann")
    about = {"endpoint": "demo/per-caller", "organisation": "7", "limit": 5, "for": "1h"}
    assert served.ask("/v1/overrides/set", about, token=TOKEN)[0] == 200
    assert served.ask("/v1/modes/set", {"rule": "demo/*", "mode": "monitor"}, token=TOKEN)[0] == 200
    wide = {"width": 1280, "height": 900}
    for scheme, viewport in (("light", wide), ("dark", wide), ("light", PHONE), ("dark", PHONE), ("light", {"width": 800, "height": 900})):
        name = f"{scheme} at {viewport['width']} pixels"
        page = on.open(served, token=None, color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
        expect(page.get_by_label("Token")).to_be_visible()
        audit(page, f"{name}, before a token")
        sign_in(page, TOKEN)
        expect(page.locator("#overrides tbody")).to_contain_text("demo/per-caller")
        expect(page.locator("#rules meter").first).to_be_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.pill'), '::before').animationName") == "none"
        audit(page, name)
        page.get_by_role("button", name="Declare emergency").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        audit(page, f"{name}, asked whether it is meant")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, whose profile is a new folder each time."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(SERVERS / "chromium"), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def main() -> int:
    """Runs all tests, or those that were named."""
    begun = time.monotonic()
    expect.set_options(timeout=PATIENCE_MS)
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    chosen = [(name, test) for name, test in tests if not sys.argv[1:] or any(word in name for word in sys.argv[1:])]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, test in chosen:
            started = time.monotonic()
            setting = Setting(browser, pathlib.Path(folder))
            try:
                with setting.stack:
                    test(setting)
                if setting.wrong:
                    raise Broken(f"the page complained: {setting.wrong}")
                print(f"ok    {name} ({time.monotonic() - started:.1f} s)", flush=True)
            except Exception as error:  # Each is told, and the others run.
                failed += 1
                print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} passed in {time.monotonic() - begun:.0f} seconds", flush=True)
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
