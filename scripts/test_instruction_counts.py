"""Tests of how counts are kept and compared. Run: `scripts/instructions.py --self-test`."""

import pathlib
import tempfile
import unittest

from instruction_counts import Counts, beyond_pairs, compare, other_versions

MADE_WITH = {"rustc": "1.95.0", "redis": "7.0.15"}


class Comparing(unittest.TestCase):
    """What passes, what fails, and what is said of it."""

    def rows(self, baseline: dict[str, float], now: dict[str, float]) -> tuple[list[list[str]], bool]:
        table, passed = compare(baseline, now)
        return [line.split(maxsplit=4) for line in table.splitlines()[1:]], passed

    def test_the_same_passes_without_a_word(self) -> None:
        rows, passed = self.rows({"memory": 200.0}, {"memory": 200.0})
        self.assertEqual(rows, [["memory", "200.0", "200.0", "1.000"]])
        self.assertTrue(passed)

    def test_three_percent_more_pass_and_a_little_more_fails(self) -> None:
        self.assertTrue(compare({"memory": 1000.0}, {"memory": 1030.0})[1])
        rows, passed = self.rows({"memory": 1000.0}, {"memory": 1030.1})
        self.assertEqual(rows, [["memory", "1,000.0", "1,030.1", "1.030", "SLOWER"]])
        self.assertFalse(passed)

    def test_faster_passes_and_is_told(self) -> None:
        rows, passed = self.rows({"memory": 1000.0}, {"memory": 969.0})
        self.assertEqual(rows, [["memory", "1,000.0", "969.0", "0.969", "faster"]])
        self.assertTrue(passed)

    def test_one_slow_path_among_fast_ones_fails(self) -> None:
        rows, passed = self.rows({"a": 100.0, "b": 100.0, "c": 100.0}, {"a": 50.0, "b": 110.0, "c": 100.0})
        self.assertEqual([row[4:] for row in rows], [["faster"], ["SLOWER"], []])
        self.assertFalse(passed)

    def test_a_path_that_is_new_or_gone_fails(self) -> None:
        rows, passed = self.rows({"old": 5.0}, {"new": 7.0})
        self.assertEqual(rows, [
            ["old", "5.0", "-", "-", "NO LONGER COUNTED"],
            ["new", "-", "7.0", "-", "NOT IN THE BASELINE"],
        ])
        self.assertFalse(passed)

    def test_columns_stand_under_their_heads(self) -> None:
        table, _ = compare({"a": 1.0, "a-long-name": 1_000_000.0}, {"a": 1.0, "a-long-name": 1_000_000.0})
        self.assertEqual(table.splitlines(), [
            "path            baseline          now  ratio",
            "a                    1.0          1.0  1.000",
            "a-long-name  1,000,000.0  1,000,000.0  1.000",
        ])


class Pairs(unittest.TestCase):
    """What one path may take of another."""

    def test_a_data_directory_costs_five_percent_at_most(self) -> None:
        self.assertEqual(beyond_pairs({"memory-admitted": 1000.0, "memory-data-dir": 1050.0}), [])
        self.assertEqual(
            beyond_pairs({"memory-admitted": 1000.0, "memory-data-dir": 1051.0}),
            ["memory-data-dir takes 1.051 of memory-admitted; at most 1.05"],
        )
        self.assertEqual(beyond_pairs({"memory-data-dir": 1051.0}), [])


class Keeping(unittest.TestCase):
    """What a file keeps."""

    def test_what_was_written_is_read(self) -> None:
        counts = Counts("0123456789ab with changes", MADE_WITH | {"python": "3.11.7 (GCC 12.2.0)"}, {"a-b": 1234.5})
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "counts.toml"
            counts.write(file)
            self.assertEqual(Counts.read(file), counts)


class Versions(unittest.TestCase):
    """When a baseline says nothing here."""

    def test_the_same_versions_compare(self) -> None:
        self.assertEqual(other_versions(Counts("c", MADE_WITH, {}), dict(MADE_WITH)), [])

    def test_another_version_is_told(self) -> None:
        self.assertEqual(
            other_versions(Counts("c", MADE_WITH, {}), MADE_WITH | {"rustc": "1.96.0"}),
            ["rustc: the baseline was made with 1.95.0, here is 1.96.0"],
        )

    def test_a_version_that_only_one_of_them_names_is_another(self) -> None:
        only_here = other_versions(Counts("c", {}, {}), {"redis": "7.0.15"})
        only_there = other_versions(Counts("c", {"redis": "7.0.15"}, {}), {})
        self.assertEqual(only_here, ["redis: the baseline was made with none, here is 7.0.15"])
        self.assertEqual(only_there, ["redis: the baseline was made with 7.0.15, here is none"])


if __name__ == "__main__":
    unittest.main()
