#!/usr/bin/env python3
"""Holds what check_dependencies.py says of too many crates, and of crates that are not needed."""

import unittest

import check_dependencies


class Lean(unittest.TestCase):
    def test_one_crate_more_is_a_problem_that_says_what_to_do(self) -> None:
        self.assertEqual(check_dependencies.grown(59, 59, "x with axum"), [])
        (problem,) = check_dependencies.grown(60, 59, "x with axum")
        self.assertIn("x with axum: 60 crates; expected at most 59", problem)
        self.assertIn("LEAN", problem)

    def test_crates_of_policies_are_a_problem_by_their_whole_names(self) -> None:
        crates = {"cel v0.15.0", "regex-lite v0.1.8", "axum v0.8.9"}
        self.assertEqual(check_dependencies.heavy(crates, "x"), ["x: depends on cel v0.15.0; expected without it"])

    def test_the_crates_of_a_package_are_counted_once(self) -> None:
        crates = check_dependencies.crates_of("ratekeeper-core", "")
        self.assertIn("ratekeeper-core v0.1.0", crates)
        self.assertLess(len(crates), 10)


if __name__ == "__main__":
    unittest.main()
