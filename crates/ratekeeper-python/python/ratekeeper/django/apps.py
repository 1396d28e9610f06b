"""For INSTALLED_APPS: with "ratekeeper.django" there, `manage.py check` looks at limits."""

from __future__ import annotations

from django.apps import AppConfig


class RatekeeperConfig(AppConfig):
    """Has no models; its checks are registered when the package is imported."""

    name = "ratekeeper.django"
    label = "ratekeeper"
