"""The applications of the pages about Python, asked by clients that mean no good: examples are copied."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from conftest import Backend

from web.test_docs import write_example

FASTAPI = """
import warnings
warnings.simplefilter("ignore")
from app import app
from fastapi.testclient import TestClient

client = TestClient(app, raise_server_exceptions=False)
bodies = [b"", b"{}", b"[]", b"1", b"[" * 100_000, b"\\xff", b'{"tenant_id": 1, "language": {}}']
JSON = {"content-type": "application/json"}
fields = [{}, {"x-key": "abc"}, {"x-key": ""}, {"x-key": "9" * 5_000}, {"x-key": "-1"}]
paths = [path for path in app.openapi()["paths"]]
for path in paths:
    for body in bodies:
        for field in fields:
            for method in ("get", "post"):
                answer = client.request(method, path.replace("{dataset_id}", "7"), content=body, headers=JSON | field)
                assert answer.status_code < 500, (path, body[:20], field, answer.text)
print(len(paths))
"""
DJANGO = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django

django.setup()
from django.test import Client

client = Client(raise_request_exception=False)
for key in ("abc", "", "9" * 5_000, "-1", "é"):
    for path in ("/datasets/7/search", "/report"):
        assert client.get(path, headers={"x-key": key}).status_code < 500, key
print(2)
"""


@pytest.mark.parametrize(("title", "program", "paths"), [("FastAPI", FASTAPI, 3), ("Policies", FASTAPI, 1), ("Django", DJANGO, 2)])
def test_examples_answer_whatever_they_are_asked(
    title: str, program: str, paths: int, redis_backend: Backend, tmp_path: pathlib.Path
) -> None:
    write_example(title, redis_backend, tmp_path)
    (tmp_path / "try.py").write_text(program)
    result = subprocess.run([sys.executable, "try.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, f"{paths}\n"), result.stderr[-2000:]
