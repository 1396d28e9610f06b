"""What decorated views say of their limits, so that it can be seen before there are requests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.views.generic import View as ClassView

from .._native import Quota
from .._rates import Quotas
from .._web import warn_of_one_counter

_ATTRIBUTE = "_ratekeeper_terms"

Function = TypeVar("Function", bound=Callable[..., Any])


class Terms(NamedTuple):
    """One limit of a view."""

    store: str
    endpoint_name: str | None
    quota: Quota | Quotas
    is_by_project: bool
    # A function says the limit with every request: the count goes on if it changes.
    is_dynamic: bool = False
    # As Application Kit counts: one counter for all methods of a class, whatever their limits are.
    is_kit: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether a project's counter is the one that Application Kit has for the endpoint."""
        is_one = isinstance(self.quota, Quota) and not self.is_dynamic
        return self.is_by_project and is_one and self.algorithm == "fixed_window"

    @property
    def algorithm(self) -> str:
        """How it counts."""
        return (self.quota if isinstance(self.quota, Quota) else self.quota[0][1]).algorithm

    @property
    def text(self) -> str:
        """What is part of the keys of other counters."""
        if self.is_dynamic:
            return "dynamic"
        return str(self.quota) if isinstance(self.quota, Quota) else ";".join(str(quota) for _, quota in self.quota)

    def endpoint(self, pattern: str, method: str | None) -> str:
        """The endpoint: what it was named, or else the pattern, with the method of a class."""
        return self.endpoint_name or (f"{pattern}:{method}" if method and not self.is_kit else pattern)

    def beside(self, others: tuple[Terms, ...]) -> tuple[Terms, ...]:
        """The limits of a view with this one more; ImproperlyConfigured if two would be one counter by mistake."""
        for other in others:
            if (other.store, other.endpoint_name) == (self.store, self.endpoint_name):
                self.refuse(other, self.endpoint_name or "rate_limit")
        return (*others, self)

    def refuse(self, other: Terms, endpoint: str) -> None:
        """Raises ImproperlyConfigured if this and another limit of an endpoint differ and count in one counter.

        Of those of Application Kit, which has always counted so, it is only told.
        """
        if not (self.is_shared and other.is_shared) or self.quota == other.quota:
            return
        if self.is_kit or other.is_kit:
            return warn_of_one_counter(endpoint, str(other.quota), str(self.quota))
        raise ImproperlyConfigured(
            f"{endpoint}: got two limits by project, {other.quota} and {self.quota}, for which Application Kit has one "
            "counter; expected one, or a counter of its own for the second, by another endpoint_name"
        )


def limits_of(view: Any) -> tuple[Terms, ...]:
    """The limits of a view, as far as its decorators hand them on."""
    found = getattr(view, _ATTRIBUTE, ())
    return found if isinstance(found, tuple) else ()


def marked(view: Function, limits: tuple[Terms, ...]) -> Function:
    """A view that says its limits."""
    setattr(view, _ATTRIBUTE, limits)
    return view


def bound_method(view: Any) -> Any:
    """The bound method that a view is made of; None if it is a function."""
    # `method_decorator` hands it on as a partial of the bound one, perhaps within other decorators.
    while view is not None and not isinstance(view, functools.partial):
        view = getattr(view, "__wrapped__", None)
    return getattr(view, "func", None)


def http_method(view: Any) -> str | None:
    """The HTTP method that a view answers, if it is a method of a class that is named so."""
    name = getattr(bound_method(view), "__name__", None)
    return name if name in ClassView.http_method_names else None
