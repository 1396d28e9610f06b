"""The URLs of `testdata/store_urls.toml`, through the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers import REPOSITORY

from ratekeeper import STORE_SCHEMES, Store, StoreError

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

CASES: list[dict[str, Any]] = tomllib.loads((REPOSITORY / "testdata" / "store_urls.toml").read_text())["url"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["url"])
def test_every_url_of_the_table_opens_or_says_what_is_wrong(case: dict[str, Any], tmp_path: Path) -> None:
    url = case["url"].replace("DIRECTORY", str(tmp_path / "data"))
    if "got" in case:
        with pytest.raises(ValueError, match="store: got .*; expected memory, redis://") as raised:
            Store.open(url)
        assert f"store: got {case['got']}" in str(raised.value)
        assert "SECRET" not in str(raised.value)
        return
    store = Store.open(url)
    assert store.kind == ("memory" if case["place"] == "memory" else "redis")
    if store.kind == "redis":
        with pytest.raises(StoreError) as failed:
            store.ping()
        assert "SECRET" not in str(failed.value)


def test_options_hold_for_what_the_url_means(tmp_path: Path) -> None:
    options: dict[str, Any] = {"memory": {"max_keys": 1_000}, "redis": {"deadline": 0.5, "prefix": "own:"}}
    for url, kind in [("memory", "memory"), (f"memory+dir://{tmp_path}", "memory"), ("redis://127.0.0.1:1", "redis")]:
        store = Store.open(url, **options)
        assert (store.kind, store.kept) == (kind, "dir" in url)
    for url in ["memory", f"memory+dir://{tmp_path}/other"]:
        with pytest.raises(TypeError, match="deadline"):
            Store.open(url, memory={"deadline": 0.5})
        with pytest.raises(ValueError, match="max_keys: got 0; expected"):
            Store.open(url, memory={"max_keys": 0})
    with pytest.raises(TypeError, match="max_keys"):
        Store.open("redis://127.0.0.1:1", redis={"max_keys": 1_000})


def test_a_server_is_not_memory() -> None:
    with pytest.raises(ValueError, match="store: got memory; expected redis://"):
        Store.redis("memory")


def test_the_schemes_are_those_of_the_table() -> None:
    schemes = {case["url"].split(":")[0].lower() for case in CASES if "place" in case}
    assert schemes == set(STORE_SCHEMES)
