"""What tests of experiments share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from experiments.plan import WorkloadRef
from tests.experiments.technique_file import USER_FILE


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Bit-for-bit comparisons need one thread: more of them add in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def user_techniques(tmp_path: Path) -> WorkloadRef:
    """digits-mlp, in a folder with a file of techniques: ``my.py``."""
    (tmp_path / "my.py").write_text(USER_FILE)
    return WorkloadRef(spec="digits-mlp", base=str(tmp_path))
