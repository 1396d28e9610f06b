"""What comes with the package: who it is from, on which terms, and what it is."""

from __future__ import annotations

import importlib.metadata
import sys


def test_the_metadata_say_what_a_stranger_wants_to_know() -> None:
    metadata = importlib.metadata.metadata("ratekeeper")
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert {url.split(",")[0] for url in metadata.get_all("Project-URL") or []} >= {"Homepage", "Documentation", "Changelog"}
    version = f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}"
    assert version in (metadata.get_all("Classifier") or [])
    text = metadata["Description"] or metadata.get_payload()  # type: ignore[attr-defined]
    assert "from ratekeeper import" in text


def test_the_licences_are_in_it_and_nothing_that_names_the_builder() -> None:
    files = importlib.metadata.files("ratekeeper") or []
    names = {file.name for file in files}
    assert {"LICENSE-MIT", "LICENSE-APACHE", "py.typed"} <= names
    assert not [file for file in files if "sboms" in str(file)]
    (licence,) = (file for file in files if file.name == "LICENSE-APACHE")
    assert "Apache License" in licence.read_text()
