"""What goes wrong on a worker of Ray's is told as what it was, never as divergence or memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import results as dataset
from experiments.config.compile import load
from experiments.errors import ExperimentError, TrainingError
from experiments.execution.executors import cluster
from experiments.execution.sweep import sweep
from experiments.scheduling.messages import Event, Note
from tests.user_models import LINEAR

pytestmark = [pytest.mark.ray, pytest.mark.slow]

WORKLOAD = f"""
import os, sys
{LINEAR}
    def loss(self, output, batch):
        %s
        return super().loss(output, batch)
"""
OPTIMIZER = """
import importlib
import torch

rules = importlib.import_module("ru" + "les")  # which no import statement names


class Rule(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
"""


def write(folder: Path, body: str = "pass", optimizer: str = "sgd", **keys: Any) -> Path:
    """An experiment file of few trials, with the workload's loss as given."""
    (folder / "mine.py").write_text(WORKLOAD % body)
    file = folder / "mine.yaml"
    lines = [f"{key}: {value}" for key, value in {"trials": 1, **keys}.items()]
    file.write_text(
        f"workload: mine.py:Mine\ngrid: {{batch_size: 32, optimizer: ['{optimizer}']}}\n"
        "search: {learning_rate: {log: [0.001, 0.1]}}\nbudget: 40 steps\nengine: module\n"
        + "\n".join(lines)
    )
    return file


def failed(file: Path, address: str, **how: Any) -> ExperimentError:
    """What a sweep raises."""
    seen: list[Event] = []
    with pytest.raises(ExperimentError) as caught:
        sweep(
            load(file), results=file.parent / "runs", address=address, observer=seen.append, **how
        )
    notes = [event.text for event in seen if isinstance(event, Note)]
    for text in (str(caught.value), *notes):
        assert "diverged" not in text
        assert "out of memory" not in text
    return caught.value


def test_a_module_that_a_worker_lacks(tmp_path: Path, ray_address: str) -> None:
    (tmp_path / "rule.py").write_text(OPTIMIZER)
    (tmp_path / "rules.py").write_text("")
    error = failed(write(tmp_path, optimizer="rule.py:Rule", trials=2), ray_address)
    assert isinstance(error, TrainingError)
    assert str(error) == "ModuleNotFoundError: No module named 'rules'"
    assert error.traceback.splitlines()[1].startswith(f'  File "{tmp_path / "rule.py"}", line 5')
    rows = dataset.open(tmp_path / "runs").trials
    assert set(rows["stop_reason"]) == {"error"}
    assert rows["error"].str.contains("No module named 'rules'").all()
    assert error.reproduce is not None
    assert error.reproduce.startswith(f"cd {tmp_path} && batchscale trial --from ")
    assert error.reproduce.split("--from ")[1].split()[0] in set(rows["trial"])


def test_code_that_ends_the_process(tmp_path: Path, ray_address: str) -> None:
    error = failed(write(tmp_path, "sys.exit('enough of it')"), ray_address)
    assert str(error) == "SystemExit: enough of it"
    assert isinstance(error, TrainingError)
    assert error.traceback.count("mine.py") == 1
    assert set(dataset.open(tmp_path / "runs").trials["stop_reason"]) == {"error"}


def test_what_comes_before_a_packs_own_code(
    tmp_path: Path, ray_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that does not find the staged files; on main it died, three times over."""
    real = cluster.staged

    @contextmanager
    def lost(*arguments: Any) -> Iterator[Any]:
        with real(*arguments) as files:
            yield replace(files, marker="no-such-file")

    monkeypatch.setattr(cluster, "staged", lost)
    error = failed(write(tmp_path), ray_address)
    assert str(error) == "a worker of Ray's did not get the experiment's files"


class Unknown:
    """A trainer that a worker cannot unpickle."""

    def __reduce__(self) -> Any:
        return __import__, ("no_such_module",)


@pytest.mark.slow
def test_arguments_that_cannot_be_unpickled(tmp_path: Path, ray_address: str) -> None:
    error = failed(write(tmp_path), ray_address, trainer=Unknown())
    assert str(error) == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os.kill(os.getpid(), 9)", "the worker process was killed (signal 9), or ended itself"),
        ("os._exit(7)", "the worker process was killed (signal 9), or ended itself"),
        (
            "import ctypes; ctypes.string_at(0)",
            "the worker process crashed, twice over: Segmentation fault (signal 11, SIGSEGV)",
        ),
    ],
)
@pytest.mark.slow
def test_a_process_that_dies(tmp_path: Path, ray_address: str, body: str, says: str) -> None:
    error = failed(write(tmp_path, body), ray_address)
    assert str(error).startswith(says)
    assert "twice over" in str(error)
    stack = getattr(error, "traceback", "")
    assert (stack.splitlines()[-1:] == ['  File "mine.py", line 17 in loss']) is ("crash" in says)


@pytest.mark.slow
def test_what_one_rank_of_a_group_raises(tmp_path: Path, ray_address: str) -> None:
    """Rank 0, which tells, only meets that the other has left."""
    body = (
        "if torch.distributed.get_rank() == 1:\n            raise ValueError('only on the second')"
    )
    error = failed(write(tmp_path, body, workers=2), ray_address)
    assert str(error) == "ValueError: only on the second"
    (row,) = dataset.open(tmp_path / "runs").trials.to_dict("records")
    assert "only on the second" in row["error"]
