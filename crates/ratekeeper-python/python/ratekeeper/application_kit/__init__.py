"""Limits under the names of Application Kit: where `application_kit` stood in an import, write `ratekeeper.application_kit`.

Application Kit is the framework that Woosmap's services are built on; its package `application_kit` has rate limits for FastAPI
and Django. This package has its modules, names, signatures and defaults for limits; everything else, such as
authentication, stays there.

    from ratekeeper.application_kit.fastapi.ratelimit import PathRateLimiter, ProjectRateLimiter
    from ratekeeper.application_kit.django.ratelimit import rate_limit

Limits count in the Redis that `redis_dependency` names. Where that is stands in the environment, as
`RATEKEEPER_REDIS_RATELIMIT=redis://...`, or is said once by `configure(redis={"ratelimit": ...})`.
"""

from ._connections import configure, store_named
from ._clients import store_of_client

__all__ = ["configure", "store_named", "store_of_client"]
