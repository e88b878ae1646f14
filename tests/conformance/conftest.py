"""The folder of users' files in which the suite's studies are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.cases import folder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("users"))
