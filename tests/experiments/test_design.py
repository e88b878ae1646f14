"""``design: one_factor``: which studies there are, and that they are those of the product."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import batchscale as bs
from batchscale.training import rerun
from experiments.config.compile import parse
from experiments.errors import ExperimentError
from experiments.factors.design import Design, combinations, combined

FACTORS = """\
workload: digits-softmax
design: one_factor
grid:
  batch_size: [16, 64]
  optimizer: [sgd, momentum, adam]
  technique: [none, {clip: 1.0}, {ema: 0.9}]
  precision: [float32, float64]
  schedule: [constant, cosine]
search: {decay: 0.8}
trials: 2
budget: 100 steps
target: validation_error < 0.2
"""


def described(text: str) -> dict[str, tuple]:
    """The factors of each study, by its identity."""
    return {
        study.id: (
            study.batch_size, study.optimizer, study.schedule,
            str(dict(study.technique)),
        )
        for study in parse(text).studies()
    }  # fmt: skip


def test_each_factor_is_changed_alone() -> None:
    alone = described(FACTORS)
    algorithms = dict.fromkeys(each[1:] for each in alone.values())
    plain = str({"precision": "float32"})
    assert [*algorithms] == [
        ("sgd", "constant", plain),
        ("momentum", "constant", plain),
        ("adam", "constant", plain),
        ("sgd", "constant", str({"precision": "float32", "clip": 1.0})),
        ("sgd", "constant", str({"precision": "float32", "ema": 0.9})),
        ("sgd", "constant", str({"precision": "float64"})),
        ("sgd", "cosine", plain),
    ]
    assert len(alone) == 2 * 7
    # The same studies as in the product: the same identities.
    product = described(FACTORS.replace("design: one_factor\n", ""))
    assert len(product) == 2 * 3 * 3 * 2 * 2
    assert alone.items() <= product.items()


def test_fields_stay_crossed() -> None:
    text = FACTORS.replace("digits-softmax", "digits-fc").replace(
        "grid:\n", "grid:\n  widths: [[4], [8]]\n"
    )
    assert len(parse(text).studies()) == 2 * 2 * 7


def test_how_many_combinations() -> None:
    factors: list[list[Any]] = [[1, 2, 3], ["a"], ["x", "y"]]
    designs = [Design(), Design(alone=True, baseline=3), Design(alone=True)]
    for design in designs:
        listed = [*combined(design, factors)]
        assert len(listed) == combinations(design, [3, 1, 2])
    assert listed == [
        ((1, "a", "x"), 0), ((1, "a", "y"), 0), ((2, "a", "x"), 0), ((3, "a", "x"), 0),
    ]  # fmt: skip
    again = [*combined(designs[1], factors)]
    assert again == [((1, "a", "x"), 0), ((1, "a", "x"), 1), ((1, "a", "x"), 2), *listed[1:]]
    assert [each for each, _ in combined(Design(), factors)] == [*itertools.product(*factors)]


@pytest.mark.slow
def test_the_limit_counts_the_studies_there_are() -> None:
    arguments = [f"{{ema: {0.5 + i / 1000}}}" for i in range(400)]
    arguments += [f"{{clip: {1 + i}}}" for i in range(400)]
    text = FACTORS.replace("{clip: 1.0}, {ema: 0.9}", ", ".join(arguments))
    text = text.replace("[16, 64]", "1..1024")
    assert len(parse(text).combinations) == 1 + 800 + 4
    with pytest.raises(ExperimentError, match="the grid has 105,732 studies"):
        parse(text.replace("one_factor", "product"))


REPLICATED = FACTORS.replace("one_factor", "{one_factor: {baseline: 3}}")


def test_the_baseline_is_searched_again_with_points_and_seeds_of_its_own() -> None:
    once, studies = parse(FACTORS).studies(), parse(REPLICATED).studies()
    baseline = [study for study in studies if study.replicate]
    # Two batch sizes, two more searches each; the others are the same studies as ever.
    assert len(studies) == len(once) + 2 * 2
    assert [p.id for p in studies if not p.replicate] == [p.id for p in once]
    assert {(p.batch_size, p.replicate) for p in baseline} == {
        (size, number) for size in (16, 64) for number in (1, 2)
    }
    plain = next(p for p in once if p.batch_size == 16)
    again = [p for p in baseline if p.batch_size == 16]
    drawn = [study.draw(0, 2) for study in (plain, *again)]
    rates = {trial.metaparameters["learning_rate"] for trials in drawn for trial in trials}
    seeds = {trial.seed for trials in drawn for trial in trials}
    ids = {trial.id for trials in drawn for trial in trials}
    assert len(rates) == len(seeds) == len(ids) == 3 * 2
    for study in again:
        same = {"optimizer", "schedule", "technique", "search", "trials", "keep"}
        assert all(getattr(study, n) == getattr(plain, n) for n in same)


def test_arms_may_train_the_points_of_the_baseline() -> None:
    """Where they tune the same ranges; seeds stay those of each trial, which identify it."""
    shared = REPLICATED.replace("baseline: 3", "baseline: 3, shared_points: true")
    text = shared.replace("{decay: 0.8}", "{learning_rate: {log: [1e-3, 1]}, decay: 0.8}")
    studies = [study for study in parse(text).studies() if study.batch_size == 16]
    drawn = {
        (p.optimizer, p.schedule, str(dict(p.technique)), p.replicate): [
            trial.metaparameters["learning_rate"] for trial in p.draw(0, 2)
        ]
        for p in studies
    }
    plain = str({"precision": "float32"})
    base = drawn["sgd", "constant", plain, 0]
    alike = [key for key, rates in drawn.items() if rates == base]
    # Momentum tunes more than the learning rate; the replicates are to differ.
    assert len(studies) == 7 + 2
    assert alike == [
        ("sgd", "constant", plain, 0),
        ("adam", "constant", plain, 0),
        ("sgd", "constant", str({"precision": "float32", "clip": 1.0}), 0),
        ("sgd", "constant", str({"precision": "float32", "ema": 0.9}), 0),
        ("sgd", "constant", str({"precision": "float64"}), 0),
        ("sgd", "cosine", plain, 0),
    ]
    apart = {p.id: p for p in parse(text.replace(", shared_points: true", "")).studies()}
    assert {study.id for study in studies} <= apart.keys()
    for study in studies:
        same = study.search.id == apart[study.id].search.id
        rates = [t.metaparameters["learning_rate"] for t in apart[study.id].draw(0, 2)]
        first = drawn["sgd", "constant", plain, 0] == rates
        assert same == (study.search.table_from is None)  # another table is another search
        assert first == (study.id == studies[0].id)
    assert len({study.draw(0, 1)[0].seed for study in studies}) == len(studies)


def test_each_field_has_a_baseline_of_its_own() -> None:
    text = REPLICATED.replace("digits-softmax", "digits-fc").replace(
        "grid:\n", "grid:\n  widths: [[4], [8]]\n"
    )
    studies = parse(text).studies()
    assert len(studies) == 2 * 2 * (7 + 2)
    again = [(str(p.workload.fields), p.batch_size) for p in studies if p.replicate]
    assert sorted(again) == sorted(2 * [*dict.fromkeys(again)])
    assert len({*again}) == 4


@pytest.mark.slow
def test_a_sweep_records_the_replicates_and_techniques_pools_them(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text(
        "workload: digits-softmax\ndesign: {one_factor: {baseline: 2}}\n"
        "grid:\n  batch_size: [16, 64, 256]\n  optimizer: [sgd, momentum]\n"
        "  technique: [none, {swa: 1}]\n"
        "trials: 2\nbudget: 80 steps\ntarget: validation_error < 0.3\n"
    )
    run = bs.sweep(str(tmp_path / "twice.yaml"), results=tmp_path / "runs", address="none")
    counts = run.trials.groupby(["optimizer", "technique", "replicate"]).size()
    assert len(counts) == 4
    assert counts.xs(1, level="replicate").index.tolist() == [("sgd", '{"precision":"float32"}')]
    assert len(run.studies) == 3 * 4
    # A trial of a replicate is found again by its id.
    rows = run.trials[run.trials["replicate"] == 1]
    assert rows["acts_from"].eq("{}").all()
    again = rerun(rows["trial"].iloc[0], results=tmp_path / "runs")
    assert again.equal
    assert again.study.replicate == 1
    answers = {row["name"]: row for row in run.techniques()}
    assert set(answers) == {"momentum", "swa 1"}
    assert {row["correction"] for row in answers.values()} == {"dunnett"}
    assert not answers["swa 1"]["tested"]
    # Running it again trains nothing.
    bs.sweep(str(tmp_path / "twice.yaml"), results=tmp_path / "runs", address="none")
    assert len(bs.open(tmp_path / "runs").trials) == len(run.trials)
