"""A trajectory depends on the global batch alone: any layout gives what one process gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from experiments import optimizers
from experiments.encoding import decode
from experiments.engines import make_engine
from experiments.parallel import DIMENSIONS
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Layout, Pack, Study, Trial
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests import problems
from tests.conformance.cases import CASES, Case
from tests.experiments.rank_groups import on_ranks
from tests.problems import largest_difference, outcomes, restore, saved

pytestmark = pytest.mark.slow

Job = tuple[Study, tuple[Trial, ...], str, int]
"""A study in its layout, its trials, the engine, and steps."""
RATE: dict[str, tuple[Any, ...]] = {"learning_rate": (0.001,)}
"""At which rounding does not grow: at 0.04 AdamW makes it tenfold every ten steps."""
GHOST = {"ghost_batch": 4}
CUT = Case(name="cut", spec="cut.py:Cut", tuned=RATE, changes={"technique": GHOST})
IMAGE = replace(CUT, spec="cut.py:Image")
SQUARE = replace(CUT, spec="cut.py:Square")
DEEP = replace(CUT, spec="deep.py:Deep")
LAYERED = replace(CUT, spec="deep.py:Layered")
PARTLY = replace(CUT, spec="deep.py:Partly")
TEXT = Case(
    name="text", spec="lm-transformer", tuned=RATE,
    fields={"layers": 2, "width": 8, "heads": 2, "context": 4, "dropout": 0.1,
            "validation_tokens": 90},
)  # fmt: skip
TWO: dict[str, dict[str, int]] = {
    "data": {},
    "shard": {"shard": 2},
    "zero2": {"shard": 2, "zero2": 1},
    "tensor": {"tensor": 2},
    "sequence": {"tensor": 2, "sequence": 1},
    "pipeline": {"pipeline": 2},
}
FOUR: dict[str, dict[str, int]] = {
    "data": {},
    "data × tensor": {"data": 2, "tensor": 2},
    "shard × tensor": {"shard": 2, "tensor": 2},
    "data × shard": {"data": 2, "shard": 2},
    "shard × sequence": {"shard": 2, "tensor": 2, "sequence": 1},
    "data × pipeline": {"data": 2, "pipeline": 2},
    "pipeline": {"pipeline": 4},
}
STEPS = 6


def job(
    base: Path, case: Case, workers: int, dimensions: dict[str, int] | None = None, **changes: Any
) -> Job:
    """A case on so many workers; ``pipeline`` has the options of a pipeline."""
    layout = Layout(
        workers=workers,
        name=changes.pop("layout", None),
        dimensions=tuple((dimensions or {}).items()),
        micro_batch=changes.pop("micro_batch", None),
        pipeline=tuple(changes.pop("pipeline", {}).items()),
    )
    kind, steps = changes.pop("kind", "module"), changes.pop("steps", STEPS)
    changes["technique"] = {**case.changes.get("technique", {}), **changes.pop("technique", {})}
    of = case.study(base, changes.pop("precision", "float64"), **{"batch_size": 24, **changes})
    return replace(of, layout=layout), case.trials(of, 2), kind, steps


def trained(
    ranks: Ranks, of: Study, trials: Sequence[Trial], kind: str, steps: int, state: Any = None
) -> dict[str, Any]:
    """Weights, metrics and state after ``steps`` more steps."""
    one = make_engine(kind, StudyContext.load(of, ranks=ranks), trials)
    if state is not None:
        restore(one, state)
    one.advance(steps)
    rows = range(len(trials))
    return {
        "weights": [one.weights(row) for row in rows],
        "measured": [one.measured(row) for row in rows],
        "metrics": one.evaluate("validation"),
        "finite": one.finite(),
        "state": saved(one),
    }


def in_one_process(job: Job, state: Any = None) -> dict[str, Any]:
    of, trials, kind, steps = job
    return trained(SOLO, replace(of, layout=Layout()), trials, kind, steps, state)


def assert_equal(results: Sequence[dict[str, Any]], plain: dict[str, Any], job: Job) -> None:
    """All ranks have the weights, the metrics and the form of state of one process."""
    of, trials, kind, _ = job
    single = of.technique["precision"] == "float32"
    close = 1e-6 if single else 1e-8
    staged = "pipeline" in dict(of.layout.dimensions)
    place = (of.workload.spec, of.optimizer, of.schedule, of.technique, of.layout)
    for result in results:
        assert result["finite"] == plain["finite"] == [True] * len(trials), place
        # The sums of losses in it are those of the rank's stage.
        assert staged or result["state"] == results[0]["state"], place
        for row in range(len(trials)):
            for key in ("weights", "measured"):
                assert largest_difference(result[key][row], plain[key][row]) < close, place
            # One trajectory, not several.
            for name, value in result["weights"][row].items():
                assert torch.equal(value, results[0]["weights"][row][name]), place
            expected = pytest.approx(plain["metrics"][row], rel=1e-6 + close, abs=1e-9)
            assert result["metrics"][row] == expected, place
    ours, theirs = decode(results[0]["state"]), decode(plain["state"])
    for state in (ours, theirs):
        for each in state:
            del each["loss"]  # what a pipeline wrote has another one
    if staged or kind == "stacked":
        of_optimizer = "update" if kind == "stacked" else "optimizer"
        ours, theirs = ([each[of_optimizer] for each in state] for state in (ours, theirs))
    assert_alike(ours, theirs, 10 * close, str(place))


def assert_alike(state: Any, plain: Any, close: float, place: str) -> None:
    """Two states have the same form everywhere, and nearly the same numbers."""
    assert type(state) is type(plain), place
    if isinstance(plain, dict):
        assert list(state) == list(plain), place
        for key in plain:
            assert_alike(state[key], plain[key], close, f"{place}.{key}")
    elif isinstance(plain, list | tuple):
        assert len(state) == len(plain), place
        for i, (each, other) in enumerate(zip(state, plain, strict=True)):
            assert_alike(each, other, close, f"{place}.{i}")
    elif isinstance(plain, torch.Tensor):
        assert (state.shape, state.dtype) == (plain.shape, plain.dtype), place
        torch.testing.assert_close(state, plain, rtol=close, atol=close, msg=place)
    else:
        assert state == (pytest.approx(plain, rel=close) if type(plain) is float else plain), place


def check(size: int, jobs: Sequence[Job], folder: Path) -> None:
    by_rank = on_ranks(size, trained, jobs, folder / str(size))
    for number, each in enumerate(jobs):
        assert_equal([rank[number] for rank in by_rank], in_one_process(each), each)


@pytest.mark.usefixtures("one_thread")
def test_data_ranks_train_every_case_as_one_process(base: Path, tmp_path: Path) -> None:
    """In either engine, an odd batch or one in micro-batches; and fewer examples than ranks."""
    jobs, number = [], 0
    for case in CASES:
        # A model that is not stacked may draw, or leave out, what cannot be told apart by rank.
        if case.slow or case.divided is None or "ramp" in case.changes:
            continue
        number += 1
        rate = replace(case, tuned={**case.tuned, "learning_rate": (0.01,)})
        kind = "stacked" if case.stacks and number % 2 else "module"
        odd: dict[str, Any] = {"batch_size": 25} if case.stacks else {}
        how: dict[str, Any] = odd if number % 4 < 2 else {"micro_batch": case.divided}
        jobs.append(job(base, rate, 2, kind=kind, **how))
    jobs += [job(base, case, 2, batch_size=1) for case in (PARTLY, TEXT)]
    one: dict[str, Any] = {"batch_size": 1, "technique": {"select": 1.0}, "precision": "float32"}
    jobs.append(job(base, Case(name="select"), 2, **one))
    growing = [case for case in CASES if "ramp" in case.changes]
    jobs += [
        job(base, case, 2, batch_size=16, kind=kind)
        for case in growing
        for kind in ("module", "stacked")
    ]
    for spec, kinds in (("Gathered", ("module", "stacked")), ("Split", ("module",))):
        plain = Case(name=spec, tuned=RATE)
        jobs += [job(base, plain, 2, layout=f"layouts.py:{spec}", kind=kind) for kind in kinds]
    check(2, jobs, tmp_path)


@pytest.mark.parametrize("size", [2, 4])
def test_products_of_dimensions_train_as_one_process(base: Path, tmp_path: Path, size: int) -> None:
    products = TWO if size == 2 else FOUR
    named = {name for each in products.values() for name in each}
    assert size == 4 or named == set(DIMENSIONS.packaged)
    jobs = []
    for name, dimensions in products.items():
        staged, text = "pipeline" in name, "sequence" in name
        jobs.append(job(base, TEXT, size, dimensions, batch_size=8, optimizer="adamw"))
        if not text:
            clip, both = {"clip": 0.5}, {"clip": 0.5, "ema": 0.5}
            # A pipeline does not average models with batch norm.
            models = [(DEEP, clip), (LAYERED, both)] if staged else [(CUT, both)]
            jobs += [
                job(base, model, size, dimensions, micro_batch=micro_batch, optimizer="adamw",
                    technique=technique, steps=12)
                for model, technique in models
                for micro_batch in (None, 12, 4)  # passes accumulate 1, 2 or more times
            ]  # fmt: skip
        if name in ("shard", "tensor"):
            jobs.append(job(base, IMAGE, size, dimensions))
            for optimizer in optimizers.names() if size == 2 else ():
                whole = SQUARE if optimizer == "soap" else CUT
                jobs.append(job(base, whole, size, dimensions, optimizer=optimizer))
        if name == "pipeline":
            jobs += [
                job(base, TEXT, size, dimensions, batch_size=8, pipeline={"schedule": schedule})
                for schedule in ("gpipe", "1f1b", "interleaved")
                if size == 2
            ]
    jobs.append(job(base, CUT, size, products["data"], precision="float32", steps=20))
    check(size, jobs, tmp_path)


def test_every_layout_reads_the_states_of_all_others(base: Path, tmp_path: Path) -> None:
    """A state is the same whole one, whichever layout wrote it and whichever goes on from it."""
    technique = {"ema": 0.5, "clip": 1.0}
    studies: tuple[tuple[Case, dict[str, Any]], ...] = (
        (TEXT, {"optimizer": "muon", "technique": technique, "batch_size": 8}),
        (CUT, {"optimizer": "adamw", "technique": technique}),
        (LAYERED, {"optimizer": "schedule-free-adamw"}),
    )
    for number, (case, changes) in enumerate(studies):
        named = {
            (size, name): dimensions
            for size, products in ((2, TWO), (4, FOUR))
            for name, dimensions in products.items()
            if ("pipeline" in name) == (case is LAYERED) or not dimensions
            if case is TEXT or "sequence" not in name
        }
        half = in_one_process(job(base, case, 1, **changes))
        expected = in_one_process(job(base, case, 1, **changes), half["state"])
        written: dict[int, list[bytes]] = {}
        for size in (2, 4):
            jobs = [
                job(base, case, size, dimensions, **changes)
                for (of_size, _), dimensions in named.items()
                if of_size == size
            ]
            states = [half["state"]] * len(jobs)
            folder = tmp_path / f"{number}-{size}"
            read = on_ranks(
                size, trained, [(*j, s) for j, s in zip(jobs, states, strict=True)], folder / "one"
            )
            for i, each in enumerate(jobs):
                assert_equal([rank[i] for rank in read], expected, each)
            written[size] = [
                result["state"] for result in on_ranks(size, trained, jobs, folder / "write")[0]
            ]
            # And from what the other ones wrote: each reads that of the one before it.
            others = [*written[size][-1:], *written[size][:-1]]
            again = on_ranks(
                size, trained, [(*j, s) for j, s in zip(jobs, others, strict=True)], folder / "any"
            )
            for i, each in enumerate(jobs):
                assert_equal([rank[i] for rank in again], expected, each)


def steps_to_target(ranks: Ranks, of: Study, trials: tuple[Trial, ...]) -> list[int | None]:
    pack = Pack(id="pack", study=of, trials=trials, engine="module")
    events = [event for part in Training(pack, group=ranks).run() for event in part]
    return [outcome.steps_to_target for outcome in outcomes(events).values()]


def test_steps_to_target_have_the_distribution_of_one_process(tmp_path: Path) -> None:
    """In float32, over whole runs of 20 seeds: rounding may move a crossing by an evaluation."""
    of = problems.study(
        workload="digits-mlp", budget_steps=150, target="validation_error < 0.2", keep=None
    )
    trials = problems.trials(of, 20, learning_rate=0.5)
    plain = [step for step in steps_to_target(SOLO, of, trials) if step]
    assert len(plain) == 20
    assert len(set(plain)) > 5
    names = {2: ("data", "shard", "tensor", "pipeline"), 4: ("data × tensor",)}
    for size, layouts in names.items():
        products = TWO if size == 2 else FOUR
        jobs = [
            (
                replace(of, layout=Layout(workers=size, dimensions=tuple(products[name].items()))),
                trials,
            )
            for name in layouts
        ]
        (together, *_) = on_ranks(size, steps_to_target, jobs, tmp_path / str(size))
        for name, steps in zip(layouts, together, strict=True):
            hits = [step for step in steps if step]
            assert len(hits) == 20, name
            assert stats.ks_2samp(hits, plain).pvalue > 0.5, name
