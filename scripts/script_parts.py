"""The parts of the Redis script, in the order in which `script.rs` joins them."""

import ast
import dataclasses
import pathlib
import re

FOLDER = pathlib.Path("crates") / "ratekeeper" / "src" / "store" / "redis"
JOINED = FOLDER / "script.rs"


@dataclasses.dataclass(frozen=True)
class Part:
    """A piece of the script: the file it is from, if it is from one, and its text."""

    file: pathlib.Path | None
    text: str


def parts(workspace: pathlib.Path) -> list[Part]:
    """All parts, as the constant `SCRIPT` has them."""
    found = re.search(r"const SCRIPT: &str = concat!\((.*?)\n\);", (workspace / JOINED).read_text(), re.DOTALL)
    if found is None:
        raise SystemExit(f"error: {JOINED}: expected `const SCRIPT: &str = concat!(..);`")
    pieces = []
    for name, literal in re.findall(r'include_str!\("([^"]+)"\)|("(?:[^"\\]|\\.)*")', found[1]):
        if name:
            pieces.append(Part(FOLDER / name, (workspace / FOLDER / name).read_text()))
        else:
            pieces.append(Part(None, ast.literal_eval(literal)))
    return pieces


def joined(workspace: pathlib.Path) -> str:
    """The script as the server gets it."""
    return "".join(part.text for part in parts(workspace))


def origin(pieces: list[Part], line: int) -> tuple[pathlib.Path, int]:
    """The file and the line in it that a line of the joined script is from."""
    before = 0
    for part in pieces:
        lines = part.text.count("\n")
        if line <= before + lines:
            return (part.file or JOINED, line - before if part.file else 0)
        before += lines
    return (JOINED, 0)
