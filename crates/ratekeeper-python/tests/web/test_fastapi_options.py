"""What users of slowapi and fastapi-limiter expect of a limiter: rates as text, methods, exemptions, costs, usage."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request, Response, WebSocket
from conftest import DEADLINE, Backend
from web.conftest import Serve
from web.fastapi_site import application, authenticate, limited, messages_of, request_of

from ratekeeper import ManualClock, Store
from ratekeeper._rates import rates_of
from ratekeeper.fastapi import (
    IpRateLimiter,
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    apply_rate_limit,
    setup,
)

with warnings.catch_warnings():
    # Older versions of it use what newer versions of others discourage.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

PROJECT = {"x-project": "1:42"}


def statuses(client: Any, count: int, path: str = "/search", **headers: str) -> list[int]:
    return [client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()}).status_code for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("5/minute", [(5, 60)]), ("5/minute;100/hour", [(5, 60), (100, 3600)]), ("10 per 2 hours", [(10, 7200)]),
        ("3/5m, 1/s", [(3, 300), (1, 1)]), ("1/day|2/WEEKS", [(1, 86_400), (2, 604_800)]), ("1/month", [(1, 2_592_000)]),
    ],
)
def test_rates_as_text(text: str, rates: list[tuple[int, int]]) -> None:
    assert list(rates_of(text)) == rates


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("5", "rate: got '5'; expected rates such as \"5/minute\""), ("5/fortnight", "got '5/fortnight'"), ("", "got ''"),
        ("5/0s", "a window of at least 1 second"), ("1/m;2/60s", "two rates of one window"),
        (";".join(f"1/{n}s" for n in range(1, 10)), "got 9 rates; expected at most 8"), ("0/m", "max_requests must be at least 1"),
    ],
)
def test_what_is_no_rate_is_told_when_a_limiter_is_made(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PathRateLimiter(text)


def test_several_rates_of_one_limiter_all_hold() -> None:
    clock = ManualClock()
    store = Store.memory(clock=clock)
    client = TestClient(limited(ProjectRateLimiter("2/minute;3/hour"), store=store))
    assert statuses(client, 3, **PROJECT) == [200, 200, 429]
    clock.advance(60)
    assert statuses(client, 2, **PROJECT) == [200, 429]
    told = client.get("/search", headers=PROJECT).headers["ratelimit-policy"]
    assert told == '"requests.60s";q=2;w=60, "requests.3600s";q=3;w=3600'


def test_rates_are_in_the_document_and_beside_numbers_refused() -> None:
    app = limited(PathRateLimiter("5/minute;100/hour"), store=Store.memory())
    description = app.openapi()["paths"]["/search"]["get"]["description"]
    assert description == "**Ratelimit:** 5/60s (requests.60s), 100/3600s (requests.3600s)"
    with pytest.raises(ValueError, match="expiry: got 60 beside '5/minute', which has its window"):
        PathRateLimiter("5/minute", 60)


def test_rates_in_handlers() -> None:
    app = application(Store.memory())

    @app.get("/apply")
    async def apply(request: Request, response: Response) -> None:
        await apply_rate_limit(request, response, "2/minute;100/hour")

    assert statuses(TestClient(app), 3, "/apply", **PROJECT) == [200, 200, 429]


@pytest.mark.parametrize("is_async", [False, True])
def test_limits_from_a_function(is_async: bool) -> None:
    def said(request: Request) -> Any:
        plan = request.headers.get("x-plan")
        return {"paid": "3/minute;50/day", "free": 1}.get(plan or "")

    async def asaid(request: Request) -> Any:
        return said(request)

    limiter = ProjectRateLimiter(asaid if is_async else said)
    client = TestClient(limited(limiter, store=Store.memory()))
    assert statuses(client, 2, x_plan="free", **PROJECT) == [200, 429]
    assert statuses(client, 4, x_plan="paid", x_project="1:43") == [200, 200, 200, 429]
    assert statuses(client, 4, **PROJECT) == [200] * 4, "None is not limited"
    assert limiter.quotas == []


def test_keys_may_be_async(backend: Backend, serve: Serve) -> None:
    class Mine(RateLimiter):
        async def make_key(self, request: Request) -> str | None:
            await asyncio.sleep(0)
            return request.headers.get("x-user")

    options: dict[str, Any] = {"deadline": DEADLINE} if backend.server else {}
    client = serve(limited(Mine(1, 60), store=backend.store(**options)))
    assert [client.get("/search", x_user="ann").status for _ in range(2)] == [200, 429]
    assert [client.get("/search").status for _ in range(2)] == [200, 200]


def test_methods_and_exemptions() -> None:
    limiter = PathRateLimiter(1, 60, methods=["post"], exempt=lambda request: "x-staff" in request.headers)
    app = FastAPI()
    setup(app, store=Store.memory())

    @app.api_route("/x", methods=["GET", "POST"], dependencies=[Depends(limiter)])
    async def x() -> None: ...

    client = TestClient(app)
    assert [client.get("/x").status_code for _ in range(2)] == [200, 200]
    assert [client.post("/x", headers={"x-staff": "1"}).status_code for _ in range(2)] == [200, 200]
    assert [client.post("/x").status_code for _ in range(2)] == [200, 429]
    with pytest.raises(TypeError, match=r"methods: got a text; expected several, such as \['POST'\]"):
        PathRateLimiter(1, methods="POST")


def test_costs_say_what_a_request_takes() -> None:
    limiter = PathRateLimiter(10, 60, cost=lambda request: int(request.headers["x-size"]))
    client = TestClient(limited(limiter, store=Store.memory()))
    assert statuses(client, 3, x_size="4") == [200, 200, 429]
    assert statuses(client, 1, x_size="2") == [200]
    with pytest.raises(ValueError, match="cost must be at least 1"):
        statuses(client, 1, x_size="0")
    with pytest.raises(ValueError, match="cost must be at least 1"):
        PathRateLimiter(1, cost=0)


def test_block_false_lets_pass_and_tells() -> None:
    app = FastAPI()
    setup(app, store=Store.memory())

    @app.get("/x", dependencies=[Depends(PathRateLimiter(1, 60, block=False))])
    async def x(request: Request) -> bool:
        assert request.state.rate_limit_decision is not None
        return bool(request.state.rate_limited)

    answers = [TestClient(app).get("/x") for _ in range(2)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, False), (200, True)]
    assert answers[1].headers["ratelimit"] == '"requests";r=0;t=60'


@pytest.mark.parametrize("kind", [PathRateLimiter, ProjectRateLimiter, IpRateLimiter])
async def test_usage_counts_nothing_and_reset_forgets(kind: Any) -> None:
    limiter = kind(2, 60, store=Store.memory())

    def request() -> Request:
        return request_of({"client": ("192.0.2.1", 1), "state": {"organization_id": 1, "project_id": 2}})

    for _ in range(2):
        await limiter(request(), Response())
    for _ in range(3):
        usage = await limiter.usage(request())
        assert usage is not None and not usage.allowed and usage.verdicts[0].remaining == 0
    await limiter.reset(request())
    usage = await limiter.usage(request())
    assert usage is not None and usage.allowed and usage.verdicts[0].remaining == 2


async def test_usage_of_who_is_not_limited() -> None:
    assert await ProjectRateLimiter(1, store=Store.memory()).usage(request_of({})) is None


def from_proxy(app: Any) -> Any:
    """The application, as a proxy asks it."""

    async def asked(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "client": ("10.0.0.1", 1)}, receive, send)

    return asked


def ip_client(store: Store, **options: Any) -> tuple[TestClient, IpRateLimiter]:
    limiter = IpRateLimiter(1, 60, **options)
    return TestClient(from_proxy(limited(limiter, store=store))), limiter


def test_addresses_are_believed_behind_trusted_proxies_only() -> None:
    client, _ = ip_client(Store.memory())
    assert statuses(client, 1, x_forwarded_for="192.0.2.1") == [200]
    assert statuses(client, 1, x_forwarded_for="192.0.2.2") == [429], "nobody is trusted"
    client, _ = ip_client(Store.memory(), trusted_proxies=["10.0.0.0/8"])
    assert statuses(client, 2, x_forwarded_for="6.6.6.6, 192.0.2.1") == [200, 429]
    assert statuses(client, 1, x_forwarded_for="7.7.7.7, 192.0.2.1") == [429], "what a client writes itself is not looked at"
    assert statuses(client, 1, x_forwarded_for="192.0.2.2, 10.0.0.9") == [200]
    networks = [statuses(client, 1, x_forwarded_for=f"2001:db8::{part}") for part in ("1", "2", "1:0:0:0:1")]
    assert networks == [[200], [429], [200]]


def test_wrong_proxies_are_told_when_a_limiter_is_made() -> None:
    for wrong, told in [
        ({"trusted_proxies": ["10.0.0.1/8"]}, r"trusted_proxies\[0\]: got \"10.0.0.1/8\"; expected 10.0.0.0/8"),
        ({"ipv6_prefix": 0}, "ipv6_prefix: got 0; expected 1 to 128"),
        ({"proxy_header": "x-real-ip"}, "header: got"),
    ]:
        with pytest.raises(ValueError, match=told):
            IpRateLimiter(1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"trusted_proxies: got a text"):
        IpRateLimiter(1, trusted_proxies="10.0.0.0/8")


def test_an_address_has_a_counter_for_each_endpoint_or_one_for_all() -> None:
    for everywhere, expected in ((False, 200), (True, 429)):
        limiter = IpRateLimiter(1, 60, everywhere=everywhere)
        app = FastAPI()
        setup(app, store=Store.memory())
        for path in ("/a", "/b"):
            app.get(path, dependencies=[Depends(limiter)])(lambda: None)
        client = TestClient(from_proxy(app))
        assert [client.get("/a").status_code, client.get("/b").status_code] == [200, expected]


def test_several_limiters_on_one_route() -> None:
    app = FastAPI()
    setup(app, store=Store.memory())
    by_address = IpRateLimiter("5/minute", policy_name="address")

    @app.get("/x", dependencies=[Depends(authenticate), Depends(by_address), Depends(ProjectRateLimiter("2/minute"))])
    async def x() -> None: ...

    client = TestClient(from_proxy(app))
    assert statuses(client, 3, "/x", **PROJECT) == [200, 200, 429]
    assert client.get("/x").headers["ratelimit"].startswith('"address";r=1;')


async def test_websockets_are_limited() -> None:
    app = FastAPI()
    setup(app, store=Store.memory())

    @app.websocket("/ws", dependencies=[Depends(IpRateLimiter("1/minute", methods=["GET"]))])
    async def ws(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    for expected in ("websocket.accept", "websocket.close"):
        assert (await messages_of(app, "/ws", "websocket"))[0]["type"] == expected
