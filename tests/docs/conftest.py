"""docs/gallery.py, which is a program and no module of a package."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from tests.batchscale.blocks import ROOT


@pytest.fixture(scope="session")
def gallery() -> Any:
    """Its functions."""
    spec = spec_from_file_location("gallery_program", ROOT / "docs" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks a class's module up
    spec.loader.exec_module(module)
    return module
