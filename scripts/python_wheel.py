#!/usr/bin/env python3
"""Builds the wheel of the Python package for release, into `target/wheels`.

One wheel is for every Python from 3.10 on, on this kind of machine.
"""

import python_tests


def main() -> None:
    """Builds it with the same tools that the tests use."""
    python_tests.FOLDER.mkdir(parents=True, exist_ok=True)
    newest, _ = python_tests.settings()
    newest.install_tools()
    wheel = python_tests.build(newest.tools, python_tests.ROOT / "target" / "wheels", "--release")
    print(wheel.relative_to(python_tests.ROOT))


if __name__ == "__main__":
    main()
