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


def test_a_server_is_not_memory() -> None:
    with pytest.raises(ValueError, match="store: got memory; expected redis://"):
        Store.redis("memory")


def test_the_schemes_are_those_of_the_table() -> None:
    schemes = {case["url"].split(":")[0].lower() for case in CASES if "place" in case}
    assert schemes == set(STORE_SCHEMES)
