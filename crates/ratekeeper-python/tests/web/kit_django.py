"""The examples of Application Kit's documents for Django and Shinobi, as they stand there but for their imports: the URLs of a site.

Authentication, `WoosmapApi`, `chain` and `terminate` are not about limits: what stands in for Application Kit's is what limits see
of it.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

# Some versions cannot be imported without warnings.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ninja import NinjaAPI

from ratekeeper.application_kit.django.ratelimit import rate_limit


def _authenticated(request: HttpRequest) -> None:
    who = request.headers.get("x-project")
    if who is not None:
        organisation, project = map(int, who.split(":"))
        request.token = types.SimpleNamespace(organization_id=organisation, project_id=project)  # type: ignore[attr-defined]


def authenticate_key() -> Callable[[Any], Any]:
    """Application Kit's, as far as limits see it."""

    def decorate(view: Any) -> Any:
        if inspect.iscoroutinefunction(view):

            async def authenticated_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                _authenticated(request)
                return await view(request, *args, **kwargs)

            return authenticated_async

        # Without `functools.wraps`: nobody sees the limits of what is within.
        def authenticated(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            _authenticated(request)
            return view(request, *args, **kwargs)

        return authenticated

    return decorate


class WoosmapApi(NinjaAPI):
    """Application Kit's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(urls_namespace="kit", **options)


class PublicKeyAuth:
    """Application Kit's, which lets everybody in."""

    def __call__(self, request: HttpRequest) -> bool:
        return True


def chain(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Application Kit's: several decorators as one, the first outermost."""

    def all_of_them(view: Any) -> Any:
        limited = view
        for decorator in reversed(decorators):
            limited = decorator(limited)
        return functools.wraps(view)(limited)

    return all_of_them


def terminate() -> Callable[[Any], Any]:
    """Application Kit's: ends a chain."""
    return lambda view: view


@authenticate_key()  # Authentication first (outermost)
@rate_limit(max_requests=100, expiry=60)  # Then rate limit
def my_view(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@authenticate_key()
@rate_limit(max_requests=100, expiry=60)
async def async_view(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


# Or with explicit endpoint name:
@authenticate_key()
@rate_limit(max_requests=100, expiry=60, endpoint_name="custom_name")
def named_view(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@authenticate_key()
@rate_limit(max_requests=100, expiry=60)  # Auto-detects: "/api/v1/datasets/<int:dataset_id>/search"
def search_view(request: HttpRequest, dataset_id: int) -> JsonResponse:
    return JsonResponse({"results": []})


api = WoosmapApi(description="My API")


@api.get("/search", auth=[PublicKeyAuth()])
@chain(authenticate_key(), rate_limit(max_requests=100, expiry=60))
@terminate()
def search(request: HttpRequest) -> dict[str, str]:
    return {"status": "ok"}


# Beside the documents: what is legal there, and counts in one counter.
class Both(View):
    @method_decorator(authenticate_key())
    @method_decorator(rate_limit(max_requests=100, expiry=60))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("got")

    @method_decorator(authenticate_key())
    @method_decorator(rate_limit(max_requests=3, expiry=60))
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("posted")


# And one endpoint with two limits, of which the first is the strictest.
@authenticate_key()
@rate_limit(max_requests=5, expiry=60)
@rate_limit(max_requests=100, expiry=30, endpoint_name="second", policy_name="second")
def two(request: HttpRequest) -> JsonResponse:
    return JsonResponse({})


urlpatterns = [
    path("my", my_view),
    path("async", async_view),
    path("named", named_view),
    path("api/v1/datasets/<int:dataset_id>/search", search_view),
    path("shinobi/", api.urls),
    path("both", Both.as_view()),
    path("two", two),
]
