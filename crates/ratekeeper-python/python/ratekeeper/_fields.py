"""Header fields of exceptions, by name in whatever case they are asked for: Application Kit writes `RateLimit`, ASGI `ratelimit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def spelt(name: str) -> str:
    """The name of a field as the standards write it: `RateLimit-Policy`, `Retry-After`."""
    words = (word.capitalize() for word in name.split("-"))
    return "-".join("RateLimit" if word == "Ratelimit" else word for word in words)


class HeaderFields(dict[str, str]):
    """A dictionary whose names are spelt as the standards have them, and found in any case."""

    def __init__(self, fields: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        super().__init__()
        self.update(fields)

    def __setitem__(self, name: str, value: str) -> None:
        super().__setitem__(spelt(name), value)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(spelt(name))

    def __delitem__(self, name: str) -> None:
        super().__delitem__(spelt(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(spelt(name))

    def get(self, name: str, default: Any = None) -> Any:
        """What stands in a field, or else the default."""
        return super().get(spelt(name), default)

    def pop(self, name: str, *default: Any) -> Any:
        """The same, and the field is gone."""
        return super().pop(spelt(name), *default)

    def setdefault(self, name: str, default: str = "") -> str:
        """What stands in a field; the default if it was not there."""
        return super().setdefault(spelt(name), default)

    def update(self, *fields: Any, **named: str) -> None:
        """Sets several."""
        for name, value in dict(*fields, **named).items():
            self[name] = value
