#!/usr/bin/env python3
"""Has systemd check the unit in `deploy`: that it can be read, and how much it may do."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

UNIT = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "ratekeeper.service"
BINARY = "/usr/local/bin/ratekeeper"
# Of 100 for a service that may do everything.
EXPOSURE_MAX = 15
CHECKS = (
    ("verify", "--man=no"),
    ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager"),
)


def main() -> int:
    """Fails if systemd does not like the unit, or is not there to be asked."""
    analyze, present = shutil.which("systemd-analyze"), shutil.which("true")
    if analyze is None or present is None:
        print("error: there is no systemd-analyze to check the unit with (Debian: package systemd)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        # The binary is not installed here, but must be one that can be run.
        copy = pathlib.Path(folder) / UNIT.name
        copy.write_text(UNIT.read_text().replace(BINARY, present))
        for arguments in CHECKS:
            result = subprocess.run([analyze, *arguments, copy], capture_output=True, text=True)
            if result.returncode != 0:
                print(f"error: systemd-analyze {' '.join(arguments)}:\n{result.stdout}{result.stderr}", file=sys.stderr)
                return 1
    print(f"systemd takes the unit, and rates what it may do at {EXPOSURE_MAX} of 100 at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
