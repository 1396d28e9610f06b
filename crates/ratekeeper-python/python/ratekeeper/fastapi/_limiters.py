"""Limiters by project, by path and by address."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `__call__`, and
# earlier versions cannot resolve text.
import dataclasses
import ipaddress
from collections.abc import Awaitable, Sequence
from typing import ClassVar, Literal

from fastapi import Request

from .._modes import Mode
from .._native import Addresses
from .._web import check_suffix
from ..keys import make_org_override_key, make_override_key, make_path_rate_limit_key, make_rate_limit_key
from ._endpoint import path_within
from ._limiter import MAKERS, Asked, RateLimiter
from ._peer import peer_address
from ._places import Places
from ._request import RequestLimits, nobody, noted_endpoint, noted_project
from ._settings import Settings


@dataclasses.dataclass(eq=False)
class ProjectRateLimiter(RateLimiter):
    """Limits each project on each endpoint, with overrides of the project and of its organisation.

    Counters and overrides are those of Application Kit: one for a project on an endpoint. A second limit there
    needs a `key_suffix`, which keeps a counter of its own; without one, `setup` refuses it when the application starts.
    Requests of nobody that `setup(identify=...)` knows are not limited: authenticate first.
    """

    key_suffix: str = dataclasses.field(default="", kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Keys that a subclass makes have to be read; those that are made here need not be.
        cls._own_keys = any(getattr(cls, name) is not getattr(ProjectRateLimiter, name) for name in MAKERS)

    _own_keys: ClassVar[bool] = False
    # Of two that differ and count in one counter: a mistake, or as it always was in Application Kit.
    refuses_shared: ClassVar[bool] = True

    def _take_terms(self) -> None:
        check_suffix(self.key_suffix)
        super()._take_terms()

    @property
    def shares_counter(self) -> bool:
        """Whether a project's counter is the one that Application Kit has for its endpoint, with this suffix."""
        return self._is_fixed and not self._own_keys

    def counter_of(self, settings: Settings, around: str, path: str) -> tuple[object, str]:
        """Where it counts for a route that is mounted somewhere, before there are requests: the store, and the endpoint."""
        return id(self.store or settings.store), f"{around}{path}{self.key_suffix}"

    def _endpoint(self, limits: RequestLimits, request: Request) -> str:
        endpoint = noted_endpoint(limits, request)
        return f"{endpoint}{self.key_suffix}" if self.key_suffix else endpoint

    def _ask(self, request: Request, limits: RequestLimits, mode: Mode) -> Asked:
        if self._own_keys:
            return super()._ask(request, limits, mode)
        project = noted_project(limits, request)
        if project is None:
            nobody(limits, request, self._store_of(limits))
            return None
        if not (self._is_fixed and self._is_plain):
            return super()._ask(request, limits, mode)
        endpoint = self._endpoint(limits, request)
        limiter, at_once = self._limiter(limits)
        if at_once and limits.sends_headers:
            # Nothing to wait for, so nothing that can be awaited needs to be made; mostly nothing to do either.
            return limiter.admit_project(limits.tally, endpoint, project[0], project[1], mode)
        places = Places.of(request.scope) if self._holds else None
        asked = limiter.acheck_project(endpoint, *project, mode=mode)
        return asked if places is None else places.held(asked, limiter.arefund)

    def make_key(self, request: Request) -> str | None | Awaitable[str | None]:
        limits = self._limits_of(request)
        project = noted_project(limits, request)
        return None if project is None else make_rate_limit_key(self._endpoint(limits, request), *project)

    def make_override_key(self, request: Request) -> str | None:
        limits = self._limits_of(request)
        project = noted_project(limits, request)
        return None if project is None else make_override_key(self._endpoint(limits, request), *project)

    def make_org_override_key(self, request: Request) -> str | None:
        limits = self._limits_of(request)
        project = noted_project(limits, request)
        return None if project is None else make_org_override_key(self._endpoint(limits, request), project[0])


class PathRateLimiter(RateLimiter):
    """Limits each path as it was asked for, whoever asks: `/users/1` and `/users/2` are two.

    For endpoints where nobody is known. Overrides do not apply. The root path of the application is no part of it:
    whether a proxy takes it off or not, it is one path.
    """

    def make_key(self, request: Request) -> str | None:
        return make_path_rate_limit_key(f"path:{path_within(request.scope)}")


@dataclasses.dataclass(eq=False)
class IpRateLimiter(RateLimiter):
    """Limits each address on each endpoint.

    The address is that of the connection. Behind proxies, `trusted_proxies` names them, as addresses or networks: then it is
    the first address in `proxy_header`, from the right, that is no trusted proxy; what a client writes there itself is not
    believed. Of IPv6, the first `ipv6_prefix` bits count, because a client has a whole network. With `everywhere=True` all
    endpoints with this limiter are one counter.
    """

    trusted_proxies: Sequence[str] = dataclasses.field(default=(), kw_only=True)
    proxy_header: Literal["x-forwarded-for", "forwarded"] = dataclasses.field(default="x-forwarded-for", kw_only=True)
    ipv6_prefix: int = dataclasses.field(default=64, kw_only=True)
    everywhere: bool = dataclasses.field(default=False, kw_only=True)

    def _take_terms(self) -> None:
        if isinstance(self.trusted_proxies, str):
            raise TypeError(f"trusted_proxies: got a text; expected several, such as [{self.trusted_proxies!r}]")
        try:
            self._addresses = Addresses(list(self.trusted_proxies), header=self.proxy_header)
        except ValueError as error:
            raise ValueError(str(error).replace("trusted[", "trusted_proxies[")) from None
        if not 1 <= self.ipv6_prefix <= 128:
            raise ValueError(f"ipv6_prefix: got {self.ipv6_prefix}; expected 1 to 128")
        super()._take_terms()

    def client_of(self, request: Request) -> str:
        """The address that a request counts under."""
        peer = request.scope.get("client")
        found = self._addresses.client(peer_address(peer[0] if peer else ""), request.scope["headers"])
        if ":" not in found:
            return found
        return f"{ipaddress.ip_network((found, self.ipv6_prefix), strict=False)}"

    def make_key(self, request: Request) -> str | None:
        endpoint = "" if self.everywhere else noted_endpoint(self._limits_of(request), request)
        return make_path_rate_limit_key(f"ip:{endpoint}:{self.client_of(request)}")
