"""Subinterpreters: the package is for the main one, and says so. Before Python 3.12, they share what the main one has loaded."""

from __future__ import annotations

import subprocess
import sys

CODE = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import ratekeeper

within = '''
try:
    import ratekeeper
    print(ratekeeper.Limiter(None, ratekeeper.Rule("r", "1/s")).check("a").allowed, flush=True)
except ImportError as error:
    print(error, flush=True)
'''
found = interpreters.create()
getattr(interpreters, "exec", interpreters.run_string)(found, within)
interpreters.destroy(found)
print(ratekeeper.Limiter(None, ratekeeper.Rule("r", "1/s")).check("a").allowed)
"""


def test_a_subinterpreter_is_told_why_not() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    told, works = result.stdout.splitlines()
    assert works == "True"
    if sys.version_info < (3, 12):
        assert told == "True"
    else:
        assert told.startswith("ratekeeper cannot be loaded in a subinterpreter") and "WSGIApplicationGroup" in told
