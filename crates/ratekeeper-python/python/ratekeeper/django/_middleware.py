"""The middleware: header fields on every response, and the answer to denied requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from .._native import HttpOptions
from . import _settings
from ._checks import check_limits, stores_of_limits
from ._exceeded import RateLimitExceeded, RequestLimits


class RateLimitMiddleware:
    """Tells clients about the limits their requests met. Put it first, so that it sees every response."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        # This imports the views, which know what stores they count in.
        check_limits()
        _settings.check(self._stores())
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def _stores(self) -> Collection[str]:
        """The stores that have to be there when a site starts."""
        # Without any, every limited view would fail.
        return tuple(_settings.named()) or sorted(stores_of_limits()) or _settings.provided() or ("default",)

    def _told(self, limits: RequestLimits, response: HttpResponseBase) -> HttpResponseBase:
        """A response that tells of the limits that its request met."""
        return told(limits, response, _settings.http_options())

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._acall(request)
        limits = RequestLimits.watched(request)
        try:
            response = cast(HttpResponseBase, self.get_response(request))
        except BaseException:
            limits.give_back()
            raise
        return self._told(limits, response)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        limits = RequestLimits.watched(request)
        try:
            response = await self.get_response(request)
        except BaseException:
            await limits.agive_back()
            raise
        return self._told(limits, response)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        return exception.response() if isinstance(exception, RateLimitExceeded) else None


def told(limits: RequestLimits, response: HttpResponseBase, options: HttpOptions) -> HttpResponseBase:
    """A response that tells of the limits that its request met, and gives their places back when it is closed."""
    limits.give_back_with(response)
    if not limits.tally:
        return response
    denial = limits.denial
    if denial is not None and response.status_code == denial.status:
        for name, value in denial.headers:
            # Whoever made the response has set its content type.
            if name != "content-type":
                response.headers.setdefault(name, value)
    for name, value in limits.tally.headers(options):
        response.headers[name] = value
    return response
