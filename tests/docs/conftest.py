"""The programs of docs/, which are modules of no package."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from tests.batchscale.blocks import ROOT


def program(name: str) -> Any:
    """A file of docs/ as a module."""
    spec = spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks a class's module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def gallery() -> Any:
    """What docs/gallery.py defines."""
    return program("gallery")


@pytest.fixture(scope="session")
def pictures() -> Any:
    """What docs/pictures.py defines."""
    return program("pictures")
