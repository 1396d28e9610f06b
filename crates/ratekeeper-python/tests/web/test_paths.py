"""One spelling of a path: the table of `testdata/paths.toml`, and what a stranger tries."""

from __future__ import annotations

from typing import Any, cast

import pytest
from servers import REPOSITORY
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import re_path
from fastapi import Depends, FastAPI

from ratekeeper import Policies, PolicyLimiter, Request, Store
from ratekeeper.django import rate_limit
from ratekeeper.fastapi import PathRateLimiter, setup
from web import django_site  # noqa: F401 (its settings)
from web.conftest import Serve
from web.fastapi_site import messages_of
from web.web_servers import asgi_server, wsgi_server

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

TABLE: list[dict[str, str]] = tomllib.loads((REPOSITORY / "testdata" / "paths.toml").read_text())["path"]
POLICY = """service = "api"
[[rules]]
name = "seen"
keys = "{path}"
quota = "1000/h fixed_window"
"""


def expected(row: dict[str, str], way: str) -> str:
    return row.get(way) or row.get("decoded") or row["path"]


def policies(policy: str) -> PolicyLimiter:
    known = Policies()
    known.install(policy)
    return PolicyLimiter(None, known)


def door(policy: str) -> FastAPI:
    """An application that takes every path, and one path of its own."""
    app = FastAPI()
    setup(app, store=Store.memory(), policies=policies(policy), service="api")

    @app.get("/expensive")
    async def expensive() -> str:
        return "expensive"

    @app.get("/api/x")
    async def x() -> str:
        return "x"

    return app


def test_every_spelling_of_the_table_is_one_path_in_fastapi(serve: Serve) -> None:
    client = serve(door(POLICY))

    def left(path: str) -> int:
        return int(client.get(path).headers["ratelimit"].split(";r=")[1].split(";")[0])

    for row in TABLE:
        assert left(row["sent"]) == left(expected(row, "asgi")) + 1, row


@pytest.mark.parametrize("way", ["asgi", "wsgi"])
def test_every_spelling_of_the_table_is_one_path_in_django(way: str) -> None:
    def seen(request: HttpRequest) -> HttpResponse:
        return HttpResponse(Request(request.method, request.get_full_path_info()).path)

    counted = rate_limit(1000, 3600, endpoint_name="all", key=lambda request: request.path_info)(seen)
    serving = {
        "asgi": lambda: asgi_server(get_asgi_application(), lifespan="off"),
        "wsgi": lambda: wsgi_server(get_wsgi_application()),
    }[way]
    stores = {"default": Store.memory()}
    with override_settings(ROOT_URLCONF=(re_path("", counted),), RATELIMIT_STORES=stores), serving() as client:
        for row in TABLE:
            answer, same = client.get(row["sent"]), client.get(expected(row, way))
            assert answer.body.decode() == same.body.decode() == expected(row, way), row
            left = [int(each.headers["ratelimit"].split(";r=")[1].split(";")[0]) for each in (answer, same)]
            assert left[0] == left[1] + 1, row


@pytest.mark.parametrize("path", ["/%65xpensive", "/e%78pensive", "/expensiv%65"])
@pytest.mark.parametrize("when", ["path == '/expensive'", "path.startsWith('/exp')", "route == '/expensive'"])
def test_another_spelling_does_not_pass_a_rule(serve: Serve, path: str, when: str) -> None:
    rule = f'service = "api"\n[[rules]]\nname = "r"\nwhen = "{when}"\nkeys = "all"\nquota = "1/h fixed_window"'
    client = serve(door(rule))
    assert [client.get("/expensive").status, client.get(path).status] == [200, 429]


def test_an_escaped_slash_is_a_slash_where_starlette_routes_by_it(serve: Serve) -> None:
    rule = 'service = "api"\n[[rules]]\nname = "r"\nwhen = "path == \'/api/x\'"\nkeys = "all"\nquota = "1/h fixed_window"'
    client = serve(door(rule))
    assert [client.get("/api/x").status, client.get("/api%2Fx").status, client.get("/%61pi%2fx").status] == [200, 429, 429]


def test_a_root_path_is_no_part_of_the_path(serve: Serve) -> None:
    rule = (
        'service = "api"\n[[rules]]\nname = "r"\nwhen = "path == \'/expensive\'"\nkeys = "{path}"\n'
        'quota = "2/h fixed_window"'
    )
    client = serve(door(rule), root_path="/v1")
    assert [client.get(path).status for path in ("/expensive", "/%65xpensive", "/expensive")] == [200, 200, 429]


def test_the_path_of_a_mounted_application_has_its_place(serve: Serve) -> None:
    """Two mounted applications have paths that look the same from within."""
    outer = FastAPI()
    inner = door(POLICY)
    outer.mount("/a", inner)
    outer.mount("/b", inner)
    client = serve(outer, root_path="/v1")
    left = [client.get(path).headers["ratelimit"].split(";r=")[1].split(";")[0] for path in ("/a/api/x", "/b/api/x", "/a/api/x")]
    assert left == ["999", "999", "998"]


async def test_a_root_path_is_no_part_of_what_a_limiter_of_paths_counts() -> None:
    """A proxy may take the root off or leave it: Starlette takes both for one path."""
    app = FastAPI()
    setup(app, store=Store.memory())
    app.get("/hooks/{name}", dependencies=[Depends(PathRateLimiter(2, 60))])(lambda: None)

    async def rooted(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": "/v1"}, receive, send)

    paths = ("/hooks/abc", "/v1/hooks/abc", "/hooks/abc", "/v1/hooks/abc", "/v1/hooks/other")
    statuses = [(await messages_of(cast(FastAPI, rooted), path))[0]["status"] for path in paths]
    assert statuses == [200, 200, 429, 429, 200]


def test_what_a_program_asks_about_is_one_path() -> None:
    for row in TABLE:
        assert Request("GET", row["sent"]).path == row["path"]
