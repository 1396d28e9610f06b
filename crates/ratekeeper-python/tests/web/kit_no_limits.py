"""The URLs of a site that has no limits."""

urlpatterns: list[object] = []
