"""Worker processes that read examples ahead: the same bits, clear errors, and no process left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import Dataset

from experiments.errors import ExperimentError
from experiments.plan import WorkloadRef
from experiments.training import prefetch
from experiments.training.batch_order import BatchOrder
from experiments.training.prefetch import Reader, available_cores, can_be_shared, worker_count
from experiments.training.splits import load_splits
from tests.experiments.random_workloads import FILE
from tests.problems import engine, study, trials
from workloads import WorkloadError

pytestmark = pytest.mark.usefixtures("one_thread", "fresh")

CPU = torch.device("cpu")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Splits are shared by all studies of a process: those of another number of workers are not."""
    from experiments.training.splits import _load

    _load.cache_clear()
    yield
    _load.cache_clear()
    assert not multiprocessing.active_children(), "each test ends its processes"


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the number of worker processes, whatever the machine has."""

    def use(count: int) -> None:
        monkeypatch.setattr(prefetch, "worker_count", lambda *_: count)

    monkeypatch.setattr(prefetch, "TASK", 3)
    return use


@pytest.fixture
def reading(workers) -> Iterator[Callable[..., Reader]]:
    """Makes readers with so many worker processes, which end with the test."""
    with ExitStack() as readers:

        def made(dataset: Dataset[Any], count: int = 2) -> Reader:
            workers(count)
            return readers.enter_context(closing(Reader(dataset, CPU)))

        yield made


class Noisy(Dataset[Any]):
    """Each example is a random number, its index, and the process that read it."""

    def __init__(self, examples: int = 40) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        return torch.randn(2), index, os.getpid()


def batches(reader: Reader, steps: range, part: slice, seed: int = 5) -> list[list[torch.Tensor]]:
    order = BatchOrder(seed, 40, 16)
    return [list(reader.training(order, part, seed, step))[:2] for step in steps]


def equal(a: list[list[torch.Tensor]], b: list[list[torch.Tensor]]) -> bool:
    pairs = [
        (x, y) for left, right in zip(a, b, strict=True) for x, y in zip(left, right, strict=True)
    ]
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("part", [slice(0, 16), slice(5, 16), slice(4, 4)])
def test_the_bits_do_not_depend_on_the_processes(reading, count: int, part: slice) -> None:
    before = torch.get_rng_state()
    here = reading(Noisy(), 0)
    expected = batches(here, range(9), part)
    ahead = reading(Noisy(), count)
    assert equal(batches(ahead, range(9), part), expected)
    assert equal(batches(ahead, range(4, 7), part), expected[4:7]), "from another step on"
    order = BatchOrder(5, 40, 16)
    for step in (0, 1, 5, 6, 2, 3):  # a trial goes back and on
        assert equal([list(ahead.training(order, part, 5, step))[:2]], [expected[step]])
    assert torch.equal(before, torch.get_rng_state())  # the caller's generator is not touched
    if part.stop > part.start:
        readers = ahead.training(order, part, 5, 4)[2]
        assert os.getpid() not in readers.tolist()


@pytest.mark.slow
def test_workers_share_a_batch(reading) -> None:
    reader = reading(Noisy())
    order = BatchOrder(0, 40, 40)
    seen = {int(x) for step in range(30) for x in reader.training(order, slice(0, 40), 0, step)[2]}
    assert len(seen) == 2


def test_an_example_of_a_batch_is_that_of_its_seed_alone(reading) -> None:
    """The definition, written out."""
    from experiments.seeds import derive

    reader = reading(Noisy())
    x, indices, _ = reader.training(BatchOrder(7, 40, 16), slice(8, 16), 7, 3)
    for i, place in enumerate(range(8, 16)):
        torch.manual_seed(derive(7, "augment", 3, place))
        assert torch.equal(x[i], torch.randn(2))
    assert indices.tolist() == BatchOrder(7, 40, 16).batches(3, 1)[0, 8:].tolist()


def test_reading_ahead_ends_with_the_only_pass(reading) -> None:
    reader = reading(Noisy())
    order = BatchOrder(0, 40, 16, repeat=False)
    for step in range(2):
        reader.training(order, slice(0, 16), 0, step)
    with pytest.raises(ExperimentError, match="beyond one pass"):
        reader.training(order, slice(0, 16), 0, 2)


class Squares(Dataset[Any]):
    def __len__(self) -> int:
        return 25

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([index * 1.0, index**2]), index


def test_evaluation_reads_every_part_in_order(reading) -> None:
    parts = list(torch.arange(25).split(7))
    expected = list(reading(Squares(), 0).evaluation(parts))
    reader = reading(Squares())
    received = list(reader.evaluation(iter(parts)))
    assert [i.tolist() for i, _ in received] == [p.tolist() for p in parts]
    assert equal([list(b) for _, b in received], [list(b) for _, b in expected])
    unfinished = reader.evaluation(iter(parts))
    next(unfinished)
    unfinished.close()
    assert len(next(iter(reader.evaluation([torch.arange(0)])))[1][0]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_trials_train_alike_with_any_number_of_workers(workers, kind: str, tmp_path: Path) -> None:
    """Several trials of a pack, one of which goes back to an earlier step, in both engines."""
    (tmp_path / "own.py").write_text(FILE)
    ref = WorkloadRef(spec="own.py:Streamed", base=str(tmp_path))
    of = study(workload=ref, batch_size=10, target="validation_error < 0.2")
    pack_trials = trials(of, 3)
    weights = []
    for count in (0, 2):
        load_splits.__globals__["_load"].cache_clear()
        workers(count)
        training = engine(kind, of, pack_trials, steps=3)
        state = training.copy([1])[0]
        training.advance(4)
        training.restore(1, state)
        training.advance(5)
        weights.append([training.weights(row) for row in range(3)])
        assert len(multiprocessing.active_children()) == count
        training.close()
        assert not multiprocessing.active_children()
    for a, b in zip(*weights, strict=True):
        assert all(torch.equal(value, b[name]) for name, value in a.items())


def test_ranks_augment_what_one_process_does(workers, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FILE)
    workers(2)
    ref = WorkloadRef(spec="own.py:NoisyStreamed", base=str(tmp_path))
    _, splits = load_splits(ref, "cpu", torch.float32)
    train = splits["train"]
    order = train.order(5, 8)
    for step in range(3):
        parts = [slice(0, 8), slice(0, 3), slice(3, 8), slice(8, 8)]
        whole, *shares = (train.fetch_step(order, part, 5, step)[0] for part in parts)
        assert torch.equal(torch.cat(shares), whole)
    train.close()


class Broken(Squares):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == 13:
            raise WorkloadError("image 13.jpg cannot be decoded", hint="replace it")
        return super().__getitem__(index)


def test_an_error_is_that_of_the_dataset_with_its_traceback(reading) -> None:
    reader = reading(Broken())
    with pytest.raises(WorkloadError, match=r"^image 13.jpg cannot be decoded$") as caught:
        list(reader.evaluation([torch.arange(25)]))
    assert caught.value.hint == "replace it"
    assert "__getitem__" in [entry.name for entry in caught.traceback]


class OnlyHere(Squares):
    def __init__(self) -> None:
        self.process = os.getpid()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if os.getpid() != self.process:
            self.fail()
        return super().__getitem__(index)

    def fail(self) -> None:
        raise OSError("this handle cannot be shared")


def test_what_fails_in_worker_processes_alone_is_read_here(reading) -> None:
    reader = reading(OnlyHere())
    received = list(reader.evaluation(torch.arange(25).split(5)))
    assert torch.cat([b[1] for _, b in received]).tolist() == list(range(25))
    assert reader.workers == 0


class Killed(OnlyHere):
    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_an_error_and_not_a_wait(reading) -> None:
    reader = reading(Killed())
    with pytest.raises(WorkloadError, match="has ended unexpectedly") as caught:
        list(reader.evaluation([torch.arange(25)]))
    assert "memory" in (caught.value.hint or "")


WITH_WORKERS = """
import sys, time
import torch
from experiments.training import prefetch
from tests.experiments.test_prefetch import Noisy
prefetch.worker_count = lambda *_: 2
reader = prefetch.Reader(Noisy(), torch.device("cpu"))
order = prefetch.BatchOrder(0, 40, 16)
pids = {int(p) for step in range(20) for p in reader.training(order, slice(0, 16), 0, step)[2]}
print(*pids, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_WORKERS], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    children = [int(pid) for pid in process.stdout.readline().split()]
    assert children
    process.kill()
    process.wait()
    process.stdout.close()
    for pid in children:
        for _ in range(200):
            if not _runs(pid):
                break
            time.sleep(0.05)
        assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class WithFile(Squares):
    def __init__(self, file: Path) -> None:
        self.file = file.open()


def test_a_dataset_with_an_open_file_is_not_shared(tmp_path: Path) -> None:
    """Its position would be that of all processes: each would read what another has sought."""
    assert can_be_shared(Squares())
    assert can_be_shared(Noisy())
    local = type("Local", (Squares,), {"f": staticmethod(lambda x: x)})()
    local.transform = lambda x: x + 1
    local.x = torch.zeros(2**20)
    assert can_be_shared(local), "code and arrays are inherited, not pickled"
    (tmp_path / "file").write_text("x")
    opened = WithFile(tmp_path / "file")
    assert not can_be_shared(opened)
    opened.file.close()


@pytest.mark.parametrize(
    ("cores", "examples", "seconds", "platform", "expected"),
    [
        (8, 10_000, 1e-3, "linux", 7),
        (64, 10_000, 1e-3, "linux", 32),
        (8, 80, 1e-3, "linux", 5),
        (1, 10_000, 1e-3, "linux", 0),
        (8, 40, 1e-3, "linux", 0),
        (8, 10_000, 1e-5, "linux", 0),
        (8, 10_000, 1e-3, "darwin", 0),
    ],
)
def test_how_many_processes_read(monkeypatch, cores, examples, seconds, platform, expected) -> None:
    monkeypatch.setattr(prefetch, "available_cores", lambda _: cores)
    monkeypatch.setattr(prefetch, "_seconds", lambda _: seconds)
    monkeypatch.setattr(sys, "platform", platform)
    assert worker_count(Noisy(examples), CPU) == expected


class _Ray:
    assigned: ClassVar[dict[str, float]] = {"CPU": 1.0}

    @staticmethod
    def is_initialized() -> bool:
        return True

    @classmethod
    def get_runtime_context(cls) -> type[_Ray]:
        return cls

    @classmethod
    def get_assigned_resources(cls) -> dict[str, float]:
        return cls.assigned


def test_cores_are_those_that_this_worker_may_use(monkeypatch) -> None:
    monkeypatch.setattr(prefetch, "_cores", lambda: 12)
    assert available_cores(CPU) == 12

    monkeypatch.setitem(sys.modules, "ray", _Ray)
    assert available_cores(CPU) == 1


def test_a_gpus_worker_has_its_share_of_the_machine(monkeypatch) -> None:
    monkeypatch.setattr(prefetch, "_cores", lambda: 12)
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert available_cores(torch.device("cuda")) == 3
    monkeypatch.setitem(sys.modules, "ray", _Ray)
    assert available_cores(torch.device("cuda")) == 3
    monkeypatch.setattr(_Ray, "assigned", {"CPU": 1.0, "GPU": 0.5})  # two workers on each
    assert available_cores(torch.device("cuda")) == 1
