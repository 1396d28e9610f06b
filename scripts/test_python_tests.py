#!/usr/bin/env python3
"""Holds what python_tests.py says of versions of Python that are to be tested and are not there."""

import pathlib
import unittest

import python_tests

SOMEWHERE = pathlib.Path("python")


class Required(unittest.TestCase):
    def test_the_oldest_and_the_newest_are_what_is_tested(self) -> None:
        found = {version: SOMEWHERE for version in ((3, 10), (3, 11), (3, 13))}
        python_tests.check_required("", found)
        python_tests.check_required("3.10 3.13", found)
        with self.assertRaisesRegex(SystemExit, r"found 3\.10 and 3\.13 to test with; expected 3\.11 as well"):
            python_tests.check_required("3.10 3.11", found)

    def test_one_version_is_not_two(self) -> None:
        with self.assertRaisesRegex(SystemExit, r"found 3\.11 to test with; expected 3\.10 and 3\.13 as well"):
            python_tests.check_required("3.10 3.13", {(3, 11): SOMEWHERE})


if __name__ == "__main__":
    unittest.main()
