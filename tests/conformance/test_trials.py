"""What is true of each entry of each registry: engines agree; a trial is the same in any pack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import _muon

import workloads
from experiments import optimizers, schedules, techniques
from experiments.encoding import decode, encode
from experiments.engines import Engine, stacking_refusal
from experiments.optimizers import muon
from experiments.plan import Layout, Outcome, Pack, Study, Trial
from experiments.training import splits
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests.conformance.cases import (
    CASES,
    KINDS,
    LARGE,
    OF_SEVERAL_RANKS,
    QUICK_PACKS,
    Case,
    made_up,
)
from tests.marks import quick
from tests.problems import engine, largest_difference, restore, said, saved, train, train_in_pieces

pytestmark = pytest.mark.usefixtures("one_thread", "made_up_data")


def params(kinds: Sequence[str] = ()) -> list[Any]:
    """Each case, or each with each of its engines."""
    made = []
    for case in CASES:
        traced_anew = case.precision == "float64" and case.name not in QUICK_PACKS
        marks = [pytest.mark.slow] if case.slow or (kinds and traced_anew) else []
        made += [
            pytest.param(case, kind, marks=marks, id=f"{case.name}, {kind}")
            for kind in kinds[: 1 + case.stacks]
        ]
        if not kinds:
            made.append(pytest.param(case, marks=marks, id=case.name))
    return made


@pytest.fixture(scope="module")
def made_up_data() -> Any:
    """Data sets that a machine may lack are made up."""
    with pytest.MonkeyPatch.context() as patch:
        for name in workloads.names():
            if name.startswith(LARGE):
                patch.setattr(type(workloads.load(name)), "data", made_up)
        splits._load.cache_clear()
        yield
    splits._load.cache_clear()


@pytest.fixture
def float64_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Muon's in float64: bfloat16 rounds 2^44 times as coarsely, and would hide all the rest."""

    def orthogonal(matrix: Any, coefficients: Any, steps: int, epsilon: float) -> torch.Tensor:
        a, b, c = coefficients
        tall = matrix.shape[0] > matrix.shape[1]
        x = (matrix.T if tall else matrix) / matrix.norm().clamp(min=epsilon)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.T if tall else x

    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", orthogonal)
    monkeypatch.setattr(muon, "ITERATION", torch.float64)


def test_each_entry_of_a_registry_has_a_case() -> None:
    studies = [case.changes for case in CASES]
    assert {of.get("optimizer") for of in studies} >= set(optimizers.names())
    assert {of.get("schedule") for of in studies} >= set(schedules.names())
    trained = {name for of in studies for name in of.get("technique", {})}
    assert trained >= set(techniques.names()).difference(OF_SEVERAL_RANKS)
    assert {case.spec for case in CASES} >= set(workloads.names())
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.usefixtures("float64_iteration")
@pytest.mark.parametrize("case", params())
def test_engines_and_micro_batches_agree(base: Path, case: Case) -> None:
    """In float64, over steps of whole batches and of divided ones, in chunks of evaluation."""
    agree(base, case)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.usefixtures("float64_iteration")
def test_engines_and_micro_batches_agree_on_a_gpu(base: Path) -> None:
    for case in CASES:
        if not case.slow:
            agree(base, case, "cuda")


def agree(base: Path, case: Case, device: str = "cpu") -> None:
    of = case.study(base, "float64")
    pack = case.trials(of, 4)
    assert (stacking_refusal(StudyContext.load(of, device), pack) is None) == case.stacks
    runs = [engine(kind, of, pack, device) for kind in KINDS[: 1 + case.stacks]]
    start = [runs[0].weights(row) for row in range(4)]
    if case.divided:
        divided = replace(of, layout=Layout(micro_batch=case.divided))
        runs += [engine(run.kind, divided, pack, device) for run in runs]
    first, *others = runs
    for run in runs:
        run.advance(4)
        run.advance(6)
    for run in runs:
        if run.kind == "module" and run is not first:
            run.chunk = 7  # type: ignore[attr-defined]
    measured = [run.evaluate("validation") for run in runs]
    for run in others:
        assert run.finite() == first.finite() == [True] * 4
    for row in range(4):
        weights, averages = first.weights(row), first.measured(row)
        assert largest_difference(start[row], weights) > 1e-4
        means = [name for name in weights if name.endswith("running_mean")]
        assert not any(torch.equal(start[row][name], weights[name]) for name in means)
        for run, metrics in zip(others, measured[1:], strict=True):
            assert largest_difference(weights, run.weights(row)) < case.close
            assert largest_difference(averages, run.measured(row)) < case.close
            assert metrics[row] == pytest.approx(measured[0][row], rel=1e-6, abs=1e-9)
    if of.technique.keys() - {"precision", "ghost_batch"}:
        plain = {n: of.technique[n] for n in ("precision", "ghost_batch") if n in of.technique}
        without = engine("module", replace(of, technique=plain), pack, device)
        without.advance(10)
        names = without.weights(0).keys() & first.measured(0).keys()
        for row in range(4):
            bare, measured_row = without.weights(row), first.measured(row)
            changed = largest_difference(
                {n: bare[n] for n in names}, {n: measured_row[n] for n in names}
            )
            assert (changed > 1e-4) == case.changes_training


def bits(one: Engine, row: int) -> list[bytes]:
    """Of a trial's weights, of those that evaluations measure, and of its sum of losses."""
    loss = one.copy([row])[0]["loss"]
    values = (loss, *one.weights(row).values(), *one.measured(row).values())
    return [value.contiguous().view(-1).numpy().tobytes() for value in values]


def alone(kind: str, of: Study, trial: Trial, steps: int) -> tuple[list[bytes], dict[str, float]]:
    """What a trial is after so many steps by itself."""
    one = engine(kind, of, (trial,))
    one.advance(steps)
    return bits(one, 0), one.evaluate("validation")[0]


@pytest.mark.parametrize(("case", "kind"), params(KINDS))
def test_a_trial_is_the_same_in_any_pack_and_from_any_snapshot(
    base: Path, case: Case, kind: str
) -> None:
    """Bit for bit: trials join, leave, are taken back, go on from what is saved, are evaluated."""
    of = case.study(base, case.precision)
    pack = case.trials(of, 6)
    one = engine(kind, of, pack[:4])
    one.advance(2)
    held = decode(encode(one.copy([1])[0]))
    one.keep([1, 3])
    one.add(pack[4:])
    one.advance(2)
    looked = one.evaluate("validation")
    assert one.evaluate("validation", [0, 2]) == [looked[0], looked[2]]
    one.restore(0, held)
    assert one.steps == [2, 4, 2, 2]
    resumed = engine(kind, of, tuple(one.trials))
    restore(resumed, saved(one))
    expected = [alone(kind, of, pack[i], steps) for i, steps in ((1, 6), (3, 8), (4, 6), (5, 6))]
    for run in (one, resumed):
        run.advance(4)
        metrics = run.evaluate("validation")
        assert [(bits(run, row), metrics[row]) for row in range(4)] == expected


RUNS = ("growing batches, adam", "my.py:Everything, clip, ema", "stream Stateful", "dropout")
"""A batch size, a technique, data and a model that have a state of their own."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", quick(RUNS, 1))
def test_a_run_goes_on_from_any_snapshot_and_where_it_was_set_aside(
    base: Path, name: str, kind: Any
) -> None:
    """A pack that ends and is continued at every evaluation; trials that go on in another one."""
    (case,) = (case for case in CASES if case.name == name)
    of = case.study(base, case.precision, evaluation_ratio=1.5, target="validation_error < 1e-4")
    pack = Pack(id="pack", study=of, trials=case.trials(of, 3), engine=kind)
    expected = said(train(of, pack.trials, kind))
    assert said(train_in_pieces(pack)) == expected

    first = Training(replace(pack, study=replace(of, keep=1), known=(6,), keep_paused=True))
    begun = said([event for part in first.run() for event in part])
    assert first.paused.keys() == expected.keys()
    second = Training(replace(pack, trials=pack.trials[1:]))
    assert second.resume(first.paused) == {trial.id for trial in pack.trials[1:]}
    ended = said([event for part in second.run() for event in part])
    for trial, rest in ended.items():
        *measured, stopped = begun[trial]
        assert isinstance(stopped, Outcome)
        assert measured + rest == expected[trial]
