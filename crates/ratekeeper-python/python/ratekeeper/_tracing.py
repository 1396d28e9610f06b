"""Marks the trace of a request that only monitor mode lets pass.

Neither ddtrace nor OpenTelemetry is imported here: a process that is traced has
imported it, and importing ddtrace changes how a process behaves.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

OVER_LIMIT = "ratelimit.over_limit"

_log = logging.getLogger("ratekeeper")


def entry_span() -> Any:
    """The OpenTelemetry span under way: at the door of a service, that of the request. None without one."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    span = trace.get_current_span()
    return span if span.is_recording() else None


def tag_over_limit(endpoint: str, span: Any = None) -> None:
    """Tags the root span: Datadog's, and OpenTelemetry's `span` or else the one under way.

    A tracer that fails is no reason to fail a request.
    """
    try:
        ddtrace = sys.modules.get("ddtrace.trace") or sys.modules.get("ddtrace")
        root = ddtrace.tracer.current_root_span() if ddtrace is not None else None
        if root is not None:
            root.set_tag(OVER_LIMIT, endpoint)
        span = span or entry_span()
        if span is not None:
            span.set_attribute(OVER_LIMIT, endpoint)
    except Exception:
        _log.debug("the trace could not be marked", exc_info=True)


@contextlib.contextmanager
def check_span(name: str) -> Iterator[None]:
    """A span around a check, on each tracer that is in use.

    A denial is no error of the service, so it is no error of OpenTelemetry's span.
    """
    with contextlib.ExitStack() as spans:
        try:
            ddtrace = sys.modules.get("ddtrace.trace") or sys.modules.get("ddtrace")
            if ddtrace is not None:
                spans.enter_context(ddtrace.tracer.trace(name))
            trace = sys.modules.get("opentelemetry.trace")
            if trace is not None:
                tracer = trace.get_tracer("ratekeeper")
                spans.enter_context(
                    tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False)
                )
        except Exception:
            _log.debug("the trace could not be begun", exc_info=True)
        yield
