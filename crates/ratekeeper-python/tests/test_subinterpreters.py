"""Subinterpreters: the package is for the main one, and says so."""

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
    assert told.startswith("ratekeeper cannot be loaded in a subinterpreter") and "WSGIApplicationGroup" in told
    assert works == "True"
