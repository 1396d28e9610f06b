"""The exception of a denied request, and what one request has met of limits."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from .._fields import HeaderFields
from .._late import all_of
from .._native import Decision, Denial, HttpOptions, Limiter, Tally
from .._result import RateLimitResult
from .._tracing import entry_span, tag_over_limit
from .._web import denial_of, detail_of
from ._settings import http_options

_ATTRIBUTE = "_ratekeeper_limits"


class HttpException(Exception):
    """An error that is answered with a status, a message and header fields, as Application Kit has it."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.message, self.headers = status, message, HeaderFields(headers or {})
        # Not `super()`: a subclass may stand beside an exception with arguments of its own.
        Exception.__init__(self, message)


class RateLimitExceeded(HttpException):
    """A limit said no. The middleware answers with 429, or 503 if limits could not be checked and are set to deny.

    Made of a `RateLimitResult`, it is a denial that says the same: for limiters of one's own, and for tests.
    """

    def __init__(self, decision: Decision | RateLimitResult, options: HttpOptions | None = None) -> None:
        self.decision, self.result = RateLimitResult.both(decision)
        self.denial: Denial = denial_of(self.decision, options or http_options())
        self.detail = detail_of(self.decision)
        told = self.decision.headers(options or http_options())
        HttpException.__init__(self, self.denial.status, self.detail, dict(told))

    def __reduce__(self) -> tuple[Any, ...]:
        # The class that Django Ninja understands is made anew where it is needed.
        kind = RateLimitExceeded if type(self).__module__ == __name__ else type(self)
        return _exceeded_of, (kind, self.decision, self.denial, self.result, self.detail, self.headers)

    def response(self) -> HttpResponse:
        """The answer; the middleware adds the fields of all limits that the request met."""
        response = HttpResponse(self.denial.body, status=self.denial.status)
        for name, value in self.denial.headers:
            response[name] = value
        return response


def _exceeded_of(
    kind: type[RateLimitExceeded], decision: Decision, denial: Denial, result: RateLimitResult, detail: str,
    headers: dict[str, str],
) -> RateLimitExceeded:
    """One that was pickled."""
    error = kind.__new__(kind)
    HttpException.__init__(error, denial.status, detail, headers)
    error.decision, error.denial, error.result, error.detail = decision, denial, result, detail
    return error


@functools.cache
def _exceeded_for_ninja(http_error: type[Exception]) -> type[RateLimitExceeded]:
    class NinjaRateLimitExceeded(RateLimitExceeded, http_error):  # type: ignore[misc,valid-type]
        """Django Ninja answers errors of its own kind itself, and takes others for bugs."""

        def __init__(self, decision: Decision | RateLimitResult, options: HttpOptions | None = None) -> None:
            RateLimitExceeded.__init__(self, decision, options)
            self.status_code = self.denial.status
            self.message = self.detail

    return NinjaRateLimitExceeded


def exceeded(decision: Decision) -> RateLimitExceeded:
    """The exception to raise, which Django Ninja and Shinobi understand too if one of them is in use."""
    ninja: Any = sys.modules.get("ninja.errors")
    return (RateLimitExceeded if ninja is None else _exceeded_for_ninja(ninja.HttpError))(decision)


class RequestLimits:
    """The limits that one request has met."""

    __slots__ = ("_held", "denial", "is_watched", "span", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self.span = entry_span()
        self.denial: Denial | None = None
        # Whether a middleware sees the end of the request.
        self.is_watched = False
        self._held: list[tuple[Limiter, Decision]] = []

    @staticmethod
    def of(request: HttpRequest) -> RequestLimits:
        """Those of a request; Django REST framework's is one around Django's."""
        request = getattr(request, "_request", request)
        limits = getattr(request, _ATTRIBUTE, None)
        if limits is None:
            limits = RequestLimits()
            setattr(request, _ATTRIBUTE, limits)
        assert isinstance(limits, RequestLimits)
        return limits

    @staticmethod
    def watched(request: HttpRequest) -> RequestLimits:
        """The same, of a request whose end is seen."""
        limits = RequestLimits.of(request)
        limits.is_watched = True
        return limits

    def note(self, decision: Decision, limiter: Limiter, endpoint: str, *, blocks: bool = True) -> None:
        """Reports a decision; raises `RateLimitExceeded` if it is a denial that blocks."""
        self.tally.add(decision)
        if decision.holds:
            self._held.append((limiter, decision))
        if not decision.allowed and blocks:
            error = exceeded(decision)
            self.denial = error.denial
            raise error
        if decision.over_limit:
            tag_over_limit(endpoint, self.span)

    def give_back(self) -> None:
        """Gives the places back that the request holds (concurrency)."""
        while self._held:
            limiter, decision = self._held.pop()
            # Of one quota, all that was charged is its place.
            limiter.refund(decision)

    async def agive_back(self) -> None:
        """The same, awaited."""
        held, self._held = self._held, []
        await all_of(limiter.arefund(decision) for limiter, decision in held)

    def give_back_with(self, response: HttpResponseBase) -> None:
        """Gives them back when the response is closed: servers do that when it has been sent."""
        if not self._held:
            return
        close = response.close

        def closed() -> None:
            try:
                close()
            finally:
                self.give_back()

        response.close = closed  # type: ignore[method-assign]


def noted(
    request: HttpRequest, decision: Decision, limiter: Limiter, endpoint: str, *, blocks: bool = True
) -> HttpResponse | None:
    """Reports a decision, and raises `RateLimitExceeded` if it is a denial that blocks.

    `request.limited` says whether any limit so far had no room. Without the middleware, Django would answer that with 500: then this is the answer.
    """
    limits = RequestLimits.of(request)
    request.limited = getattr(request, "limited", False) or not decision.allowed  # type: ignore[attr-defined]
    try:
        limits.note(decision, limiter, endpoint, blocks=blocks)
    except RateLimitExceeded as error:
        # Who calls a view without a site, as tests do, takes the exception.
        if limits.is_watched or getattr(request, "resolver_match", None) is None:
            raise
        response = error.response()
        for name, value in limits.tally.headers(http_options()):
            response[name] = value
        return response
    return None
