"""The same view without a limit, with ours, and with django-ratelimit's."""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django_ratelimit.decorators import ratelimit

from ratekeeper.django import rate_limit

LIMIT = 1_000_000_000


def plain(request: HttpRequest) -> HttpResponse:
    """Nothing."""
    return HttpResponse("ok")


urlpatterns = [
    path("plain", plain),
    path("ratekeeper", rate_limit(LIMIT, 3600)(plain)),
    path("django-ratelimit", ratelimit(key="ip", rate=f"{LIMIT}/h")(plain)),
]
