"""A synthetic dataset on disk, and an object store in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.storage.location import Location
from tests import memory_store
from tests.results import release, synthetic


@pytest.fixture(scope="session")
def _written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("synthetic") / "runs"
    synthetic.write(root)
    return root


@pytest.fixture
def folder(_written: Path, tmp_path: Path) -> Path:
    """A results folder of its own: 12 studies, 48 trials."""
    return Path(shutil.copytree(_written, tmp_path / "runs"))


@pytest.fixture(scope="session")
def _released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("release") / "batch_science"
    release.write(root, release.small())
    return root


@pytest.fixture
def tree(_released: Path, tmp_path: Path) -> Path:
    """A tree of its own in the layout of a release: 12 studies, 60 trials, 756 measurements."""
    return Path(shutil.copytree(_released, tmp_path / "batch_science"))


@pytest.fixture
def bucket() -> Iterator[Location]:
    """An empty object store."""
    with memory_store.bucket() as location:
        yield location
