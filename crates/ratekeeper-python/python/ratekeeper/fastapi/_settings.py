"""What limiters have to know."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.requests import HTTPConnection, Request

from .._modes import MODES, ModeSource, plain
from .._native import HttpOptions, Limiter, PolicyLimiter, Store
from .._web import (
    DETAIL,
    LIMITERS_MAX,
    ON_OUTAGE,
    LimiterOf,
    OnOutage,
    Pair,
    check_kind,
    check_plain_callable,
    check_word,
    limiters,
)


class Project(NamedTuple):
    """Who is calling, as Application Kit knows it."""

    organization_id: int | str
    project_id: int | str


Identify = Callable[[Request], Pair | None]
Claims = Callable[[Request], Mapping[str, str | int | float | bool] | None]


def project_of_state(request: HTTPConnection) -> Project | None:
    """What an authentication has put into `request.state.organization_id` and `.project_id`."""
    state = request.scope.get("state") or {}
    organisation, project = state.get("organization_id"), state.get("project_id")
    return None if organisation is None or project is None else Project(organisation, project)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `setup` was told."""

    store: Store | None = None
    policies: PolicyLimiter | None = None
    service: str | None = None
    identify: Identify = project_of_state
    claims: Claims | None = None
    mode: ModeSource = None
    on_outage: OnOutage = "allow"
    options: HttpOptions = DETAIL
    body_bytes_max: int = 256 * 1024
    body_wait: float = 5
    limiter_of: LimiterOf = dataclasses.field(default_factory=limiters, init=False, repr=False, compare=False)
    # The limiter of each `RateLimiter`, and whether it answers without waiting.
    made: dict[object, tuple[Limiter, bool]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # Tells what is wrong now, not with the first request.
        check_kind("store", self.store, Store, None)
        check_kind("policies", self.policies, PolicyLimiter, None)
        check_kind("service", self.service, str, None)
        check_plain_callable("identify", self.identify)
        if self.claims is not None:
            check_plain_callable("claims", self.claims)
        if callable(self.mode):
            check_plain_callable("mode", self.mode)
        else:
            check_word("mode", self.mode, (*MODES, None))
            object.__setattr__(self, "mode", self.mode and plain(self.mode))
        check_word("on_outage", self.on_outage, ON_OUTAGE)
        check_kind("options", self.options, HttpOptions)
        check_kind("body_bytes_max", self.body_bytes_max, int)
        check_kind("body_wait", self.body_wait, int, float)
        for name, value in (("body_bytes_max", self.body_bytes_max), ("body_wait", self.body_wait)):
            if value < 0:
                raise ValueError(f"{name}: got {value}; expected 0 or more")

    def keep(self, limiter: object, made: tuple[Limiter, bool]) -> None:
        """Remembers what was made for a limiter."""
        if len(self.made) >= LIMITERS_MAX:
            self.made.clear()
        self.made[limiter] = made
