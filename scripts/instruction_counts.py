"""Counts of instructions, as `benches/instructions.toml` keeps them, and how two of them compare."""

import dataclasses
import pathlib
import tomllib

# More than this above the baseline fails.
SLOWER_MAX = 0.03
# Less than this below it is not worth a word.
FASTER_MIN = 0.03
# What a path may take of another one: checks with a data directory of those in memory.
PAIRS = {("memory-data-dir", "memory-admitted"): 1.05}
HEAD = """\
# What each path costs in instructions: the baseline of `make bench-instructions`, which writes this file. How
# to make a new one is in CONTRIBUTING.md.
"""


@dataclasses.dataclass(frozen=True)
class Counts:
    """Instructions for one step of each path, and what they were counted with."""

    commit: str
    made_with: dict[str, str]
    paths: dict[str, float]

    @classmethod
    def read(cls, file: pathlib.Path) -> "Counts":
        """What a file keeps."""
        kept = tomllib.loads(file.read_text())
        return cls(kept["commit"], kept["made_with"], kept["paths"])

    def write(self, file: pathlib.Path) -> None:
        """Keeps it in a file."""
        made_with = [f'{name} = "{version}"' for name, version in self.made_with.items()]
        paths = [f"{name} = {count:.1f}" for name, count in self.paths.items()]
        lines = [f'commit = "{self.commit}"', "", "[made_with]", *made_with, "", "[paths]", *paths]
        file.write_text(HEAD + "\n".join(lines) + "\n")


def other_versions(baseline: Counts, made_with: dict[str, str]) -> list[str]:
    """What the baseline was made with and we do not have, a line each."""
    names = dict.fromkeys([*baseline.made_with, *made_with])
    return [
        f"{name}: the baseline was made with {baseline.made_with.get(name, 'none')}, here is {made_with.get(name, 'none')}"
        for name in names
        if baseline.made_with.get(name) != made_with.get(name)
    ]


def verdict(before: float | None, now: float | None) -> str:
    """What is to be said of a path."""
    if before is None:
        return "NOT IN THE BASELINE"
    if now is None:
        return "NO LONGER COUNTED"
    if now > before * (1 + SLOWER_MAX):
        return "SLOWER"
    return "faster" if now < before * (1 - FASTER_MIN) else ""


def compare(baseline: dict[str, float], now: dict[str, float]) -> tuple[str, bool]:
    """A table of all paths, and whether none of them has become slower, come up or gone."""
    names = dict.fromkeys([*baseline, *now])
    rows = [("path", "baseline", "now", "ratio", "")]
    for name in names:
        before, after = baseline.get(name), now.get(name)
        ratio = "-" if before is None or after is None else f"{after / before:.3f}"
        cells = ("-" if count is None else f"{count:,.1f}" for count in (before, after))
        rows.append((name, *cells, ratio, verdict(before, after)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for name, *numbers, said in rows:
        cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:]))]
        lines.append("  ".join([*cells, said]).rstrip())
    return "\n".join(lines), all(row[-1] in ("", "faster") for row in rows)


def beyond_pairs(now: dict[str, float]) -> list[str]:
    """The paths that take more of another one than they may, a line each."""
    counted = {pair: most for pair, most in PAIRS.items() if all(name in now for name in pair)}
    ratios = {pair: now[pair[0]] / now[pair[1]] for pair in counted}
    return [
        f"{name} takes {ratio:.3f} of {other}; at most {counted[name, other]:.2f}"
        for (name, other), ratio in ratios.items()
        if ratio > counted[name, other]
    ]
