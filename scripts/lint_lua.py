#!/usr/bin/env python3
"""Runs luacheck over the Redis script as the server gets it, and names the part of each finding.

A part alone is no program: it uses what the parts before it define. Debian's package lua-check has
luacheck; it is installed if it is missing and this is root on Debian, and else its lack is an error.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import bench_peers
import script_parts

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
    """Prints the findings, a line for each."""
    if shutil.which("luacheck") is None:
        bench_peers.install_packages("luacheck on PATH", "lua-check")
    pieces = script_parts.parts(ROOT)
    command = ["luacheck", "--config", str(ROOT / ".luacheckrc"), "--formatter", "plain", "--codes", "-"]
    text = "".join(part.text for part in pieces)
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    for line in result.stdout.splitlines():
        found = re.match(r"stdin:(\d+):(\d+): (.*)", line)
        if found is None:
            print(line, file=sys.stderr)
            continue
        file, number = script_parts.origin(pieces, int(found[1]))
        print(f"{file}:{number}:{found[2]}: {found[3]}", file=sys.stderr)
    if result.returncode != 0:
        print(result.stderr or "error: luacheck objects to the script", file=sys.stderr)
        return 1
    files = {part.file for part in pieces if part.file}
    print(f"luacheck: {len(text.splitlines())} lines of {len(files)} parts, nothing to object to")
    return 0


if __name__ == "__main__":
    sys.exit(main())
