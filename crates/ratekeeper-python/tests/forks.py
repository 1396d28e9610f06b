"""Children of the process that runs the tests."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

CHILD_DEADLINE = 60


def fork(work: Callable[[], bool]) -> int:
    """Runs `work` in a fork of this process, which ends with it: whatever fails there, nothing
    of the tests goes on in the child, and the servers stay with the parent."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            # One that hangs is ended by the alarm.
            signal.alarm(CHILD_DEADLINE)
            code = 0 if work() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended_well(pid: int) -> bool:
    """Waits for a child; whether all was well there."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
