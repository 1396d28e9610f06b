"""A Django site with limits: for tests in this process, and for servers with processes of their own."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View

# On a busy machine an answer may take its time.
STORE = {"url": os.environ["SITE_STORE"], "deadline": 10.0} if "SITE_STORE" in os.environ else "memory"

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DEBUG=False,
        MIDDLEWARE=["ratekeeper.django.RateLimitMiddleware", "django.middleware.common.CommonMiddleware"],
        RATELIMIT_STORES={"default": STORE, "other": "memory"},
        RATELIMIT_PROJECT=f"{__name__}.project_of",
        ROOT_URLCONF=__name__,
        SECRET_KEY="for tests only",
        USE_TZ=True,
    )
    django.setup()

# Only with settings can these be imported, and some versions of them not without warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ninja import NinjaAPI

from ratekeeper.django import RateLimitExceeded, rate_limit  # noqa: E402


def project_of(request: HttpRequest) -> tuple[int, int] | None:
    """Somebody's authentication: the project stands in a field."""
    who = request.headers.get("x-project")
    if who is None:
        return None
    organisation, project = who.split(":")
    return int(organisation), int(project)


def up(request: HttpRequest) -> HttpResponse:
    """Says that the site is there."""
    return HttpResponse(str(os.getpid()))


@rate_limit(max_requests=2, expiry=60)
def search(request: HttpRequest, dataset_id: int = 0) -> JsonResponse:
    """Limited by the URL pattern."""
    return JsonResponse({"dataset": dataset_id})


@rate_limit(max_requests=2, expiry=60)
async def asearch(request: HttpRequest, dataset_id: int = 0) -> JsonResponse:
    """The same, async."""
    return JsonResponse({"dataset": dataset_id})


@rate_limit(2, 60, endpoint_name="custom_name")
def named(request: HttpRequest) -> JsonResponse:
    """Limited under a name of its own."""
    return JsonResponse({})


@rate_limit(1, 60, store="other", policy_name="elsewhere")
def elsewhere(request: HttpRequest) -> JsonResponse:
    """Counted in another store."""
    return JsonResponse({})


@rate_limit(5, 60)
@rate_limit(1, 30, endpoint_name="inner", policy_name="inner")
def twice(request: HttpRequest) -> JsonResponse:
    """Limited twice."""
    return JsonResponse({})


@rate_limit(1, 60, key=lambda request: request.headers.get("x-key"))
def keyed(request: HttpRequest) -> JsonResponse:
    """Limited by something else than the project."""
    return JsonResponse({})


@rate_limit(1, 60, key=lambda request: request.headers.get("x-key"), algorithm="sliding_log")
async def akeyed(request: HttpRequest) -> JsonResponse:
    """The same, async and exact."""
    return JsonResponse({})


@rate_limit(1, 60, on_outage="deny")
def strict(request: HttpRequest) -> JsonResponse:
    """Denied when nobody can tell."""
    return JsonResponse({})


@rate_limit(9, 60)
def stream(request: HttpRequest) -> StreamingHttpResponse:
    """A response in parts, in the way that the server wants them."""

    async def parts() -> AsyncIterator[bytes]:
        for part in (b"a", b"b"):
            yield part

    return StreamingHttpResponse(parts() if isinstance(request, ASGIRequest) else iter([b"a", b"b"]))


@rate_limit(9, 60)
def broken(request: HttpRequest) -> HttpResponse:
    """A view that fails."""
    raise RuntimeError("broken")


@rate_limit(1, 60)
def catching_inner(request: HttpRequest) -> HttpResponse:
    return HttpResponse("inner")


def catching(request: HttpRequest) -> HttpResponse:
    """A view that answers denials itself."""
    try:
        return catching_inner(request)
    except RateLimitExceeded as error:
        assert error.result is not None
        counted = f"{error.result.request_count}/{error.result.max_requests} {error.result.is_over_limit}"
        return HttpResponse(f"{error}: {counted}", status=420)


def plain(view: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does nothing."""

    @functools.wraps(view)
    def same(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return view(request, *args, **kwargs)

    return same


class Classy(View):
    """A class with limits on one of its methods."""

    @method_decorator(rate_limit(1, 60))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("got")

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("posted")


class AsyncClassy(View):
    """The same, async."""

    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("got")


@method_decorator(rate_limit(1, 60), name="dispatch")
class LimitedClassy(AsyncClassy):
    """With a limit on all of its methods."""


@method_decorator([plain, rate_limit(1, 60)], name="dispatch")
class DecoratedClassy(AsyncClassy):
    """And with another decorator."""


# Whoever holds the only place goes on when this is set.
GO_ON = threading.Event()


@rate_limit(1, 60, algorithm="concurrency")
def held(request: HttpRequest) -> HttpResponse:
    """One at once, in parts if that is asked for."""
    if "broken" in request.GET:
        raise RuntimeError("broken")
    if "parts" not in request.GET:
        return HttpResponse("whole")

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        await sync_to_async(GO_ON.wait, thread_sensitive=False)(20)
        yield b"last"

    def plain_parts() -> Iterator[bytes]:
        yield b"first"
        GO_ON.wait(20)
        yield b"last"

    return StreamingHttpResponse(parts() if isinstance(request, ASGIRequest) else plain_parts())


@rate_limit(1, 60, algorithm="concurrency")
async def aheld(request: HttpRequest) -> HttpResponse:
    """The same, async."""
    if "broken" in request.GET:
        raise RuntimeError("broken")
    return HttpResponse("whole")


api = NinjaAPI(urls_namespace=os.environ.get("SITE_NAMESPACE", "site"))


@api.get("/search/{item}")
@rate_limit(max_requests=1, expiry=60)
def ninja_search(request: HttpRequest, item: int, q: str = "") -> dict[str, Any]:
    """An operation with parameters."""
    return {"item": item, "q": q}


@api.get("/asearch/{item}")
@rate_limit(max_requests=1, expiry=60)
async def ninja_asearch(request: HttpRequest, item: int) -> dict[str, Any]:
    """The same, async."""
    return {"item": item}


def chain(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several decorators as one, the first outermost, as some projects write it."""

    def all_of_them(view: Any) -> Any:
        for decorator in reversed(decorators):
            view = decorator(view)
        return view

    return all_of_them


@api.get("/chained")
@chain(rate_limit(max_requests=1, expiry=60))
def ninja_chained(request: HttpRequest) -> dict[str, str]:
    """Decorated as a chain."""
    return {"status": "ok"}


inner = [path("datasets/<int:dataset_id>/search", search), path("datasets/<int:dataset_id>/asearch", asearch)]

urlpatterns = [
    path("up", up),
    path("search", search),
    path("asearch", asearch),
    path("api/v1/", include(inner)),
    re_path(r"^old/(?P<dataset_id>\d+)$", search),
    path("named", named),
    path("elsewhere", elsewhere),
    path("twice", twice),
    path("keyed", keyed),
    path("akeyed", akeyed),
    path("strict", strict),
    path("stream", stream),
    path("broken", broken),
    path("catching", catching),
    path("classy", Classy.as_view()),
    path("aclassy", rate_limit(1, 60)(AsyncClassy.as_view())),
    path("limited-classy", LimitedClassy.as_view()),
    path("decorated-classy", DecoratedClassy.as_view()),
    path("held", held),
    path("aheld", aheld),
    path("ninja/", api.urls),
]


asgi = get_asgi_application()
wsgi = get_wsgi_application()
