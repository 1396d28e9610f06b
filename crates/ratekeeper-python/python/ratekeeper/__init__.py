"""Exact, explained, all-or-nothing rate limits.

    from ratekeeper import Limiter, Rule, Store

    limiter = Limiter(Store.redis("redis://127.0.0.1:6379"), [
        Rule("per-user", "{rps=20, rpm=1000}"),
        Rule("all", "10000/s", everyone=True),
    ])
    decision = limiter.check("ann")          # or: await limiter.acheck("ann")
    if not decision:
        print(decision.explain(), decision.retry_after)

Integrations are in `ratekeeper.fastapi`, `ratekeeper.django` and, for the `limits`
library, `ratekeeper.limits_storage`.
"""

try:
    from ._native import (
        EXPOSE_HEADERS,
        STORE_SCHEMES,
        Addresses,
        Charge,
        Decision,
        Denial,
        Health,
        HttpOptions,
        Limiter,
        ManualClock,
        Needs,
        Outages,
        Override,
        Policies,
        PolicyError,
        PolicyLimiter,
        PolicyWatch,
        Quota,
        RatekeeperError,
        Request as Request,
        Rule,
        ServiceLimiter,
        Store,
        StoreError,
        Switch,
        Tally,
        Verdict,
        __version__,
        mode_from_environment,
    )
except ImportError as _error:
    if "interpreter" not in str(_error):
        raise
    raise ImportError(
        "ratekeeper cannot be loaded in a subinterpreter, because its native module is one for each process; expected the "
        "main interpreter (of mod_wsgi: WSGIApplicationGroup %{GLOBAL}), or processes instead of interpreters"
    ) from _error
from ._result import RateLimitResult

# Without `Request`: `import *` would hide the framework's.
__all__ = [
    "EXPOSE_HEADERS",
    "STORE_SCHEMES",
    "Addresses",
    "Charge",
    "Decision",
    "Denial",
    "Health",
    "HttpOptions",
    "Limiter",
    "ManualClock",
    "Needs",
    "Outages",
    "Override",
    "Policies",
    "PolicyError",
    "PolicyLimiter",
    "PolicyWatch",
    "Quota",
    "RateLimitResult",
    "RatekeeperError",
    "Rule",
    "ServiceLimiter",
    "Store",
    "StoreError",
    "Switch",
    "Tally",
    "Verdict",
    "__version__",
    "mode_from_environment",
]
