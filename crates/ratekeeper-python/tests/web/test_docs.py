"""The examples of docs/python.md, run as they stand there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from conftest import DEADLINE, Backend
from servers import REPOSITORY, free_port

TEXT = (REPOSITORY / "docs" / "python.md").read_text()
SECTIONS = dict(re.findall(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(python|toml|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNING = [title for title, body in SECTIONS.items() if "```python" in body]


def test_every_example_is_in_a_section_that_is_run() -> None:
    assert RUNNING == [
        "By itself", "Costs, ids and charges of one's own", "FastAPI", "Policies", "Limiters of one's own", "Django",
        "limits and slowapi",
    ]


@pytest.mark.parametrize("title", RUNNING)
def test_examples_print_what_they_say(title: str, redis_backend: Backend, tmp_path: pathlib.Path) -> None:
    expected = None
    for language, block in BLOCK.findall(SECTIONS[title]):
        if language == "text":
            expected = block
            continue
        first, rest = block.split("\n", 1)
        file = tmp_path / first.lstrip("#/ ")
        file.parent.mkdir(exist_ok=True)
        file.write_text(rest if language == "json" else for_this_server(rest, redis_backend))
    result = subprocess.run(
        [sys.executable, "-W", "error", "try.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, expected), result.stderr


def for_this_server(code: str, backend: Backend) -> str:
    """The server of the test, and patience with a busy machine."""
    assert backend.server is not None
    url = backend.server.url
    code = code.replace('Store.redis("redis://127.0.0.1:6379"', f'Store.redis("{url}", deadline={DEADLINE}')
    code = code.replace('"default": "redis://127.0.0.1:6379"', f'"default": {{"url": "{url}", "deadline": {DEADLINE}}}')
    return code.replace("redis://127.0.0.1:6379", url).replace("8000", str(free_port()))
