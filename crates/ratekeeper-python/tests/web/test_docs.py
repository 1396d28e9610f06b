"""The examples of the pages about Python, run as they stand there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from conftest import DEADLINE, Backend
from servers import REPOSITORY, free_port

PAGES = ("python", "python-fastapi", "python-django", "application-kit")
MIGRATIONS = ("slowapi", "fastapi-limiter", "django-ratelimit", "rest-framework", "limits", "flask-limiter")
SECTION = re.compile(r"^##+ (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
# What has no comments is named by the line before it.
BLOCK = re.compile(r"(?:^`([\w./-]+)`:\n\n)?^```(python|toml|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text_of(page: str) -> str:
    return (REPOSITORY / "docs" / f"{page}.md").read_text()


# Pages about other libraries are one example each.
SECTIONS = {title: body for page in PAGES for title, body in SECTION.findall(text_of(page))}
SECTIONS.update({name: text_of(f"migrate/{name}") for name in MIGRATIONS})
RUNNING = [title for title, body in SECTIONS.items() if "```python\n" in body]


def test_every_example_is_in_a_section_that_is_run() -> None:
    assert RUNNING == [
        "By itself", "Costs, ids and charges of one's own", "limits, slowapi and Flask-Limiter", "Testing", "Outgoing calls",
        "FastAPI", "Options of limiters", "WebSockets", "Policies", "Limiters of one's own",
        "Overrides of several endpoints",
        "Django", "Keys, groups and methods", "REST framework", "Change the imports", *MIGRATIONS,
    ]


def test_every_migration_page_is_listed() -> None:
    listed = text_of("migrate/README")
    assert [name for name in MIGRATIONS if f"]({name}.md)" not in listed] == []


def test_no_page_has_two_sections_of_a_name() -> None:
    titles = [title for page in PAGES for title, body in SECTION.findall(text_of(page)) if "```python\n" in body]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("title", RUNNING)
def test_examples_print_what_they_say(title: str, redis_backend: Backend, tmp_path: pathlib.Path) -> None:
    expected = write_example(title, redis_backend, tmp_path)
    result = subprocess.run(
        [sys.executable, "-W", "error", "try.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, expected), result.stderr


def write_example(title: str, backend: Backend, folder: pathlib.Path) -> str | None:
    """Writes the files of an example; returns what it says that it prints."""
    expected = None
    for name, language, block in BLOCK.findall(SECTIONS[title]):
        if language == "text":
            expected = block
            continue
        if not name:
            first, block = block.split("\n", 1)
            name = first.lstrip("# ")
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(block if language == "json" else for_this_server(block, backend))
    return expected


def for_this_server(code: str, backend: Backend) -> str:
    """The server of the test, and patience with a busy machine."""
    assert backend.server is not None
    url = backend.server.url
    code = code.replace('Store.redis("redis://127.0.0.1:6379"', f'Store.redis("{url}", deadline={DEADLINE}')
    code = code.replace('"default": "redis://127.0.0.1:6379"', f'"default": {{"url": "{url}", "deadline": {DEADLINE}}}')
    return code.replace("redis://127.0.0.1:6379", url).replace("8000", str(free_port()))
