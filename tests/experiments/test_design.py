"""``design: one_factor``: which studies there are, and that they are those of the product."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest

from experiments.config.compile import load, parse
from experiments.errors import ExperimentError
from experiments.factors.design import combinations, combined

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
        plan.study.id: (
            plan.study.batch_size, plan.study.optimizer, plan.study.schedule,
            str(dict(plan.study.technique)),
        )
        for plan in parse(text).plans()
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
    assert len(parse(text).plans()) == 2 * 2 * 7


def test_the_resolved_file_keeps_it() -> None:
    experiment = parse(FACTORS)
    assert "design: one_factor" in experiment.to_yaml()
    again = parse(experiment.to_yaml())
    assert [p.study.id for p in again.plans()] == [p.study.id for p in experiment.plans()]
    assert "design" not in load("digits").to_yaml()


def test_how_many_combinations() -> None:
    factors: list[list[Any]] = [[1, 2, 3], ["a"], ["x", "y"]]
    designs: tuple[Literal["product", "one_factor"], ...] = ("product", "one_factor")
    for design in designs:
        listed = [*combined(design, factors)]
        assert len(listed) == combinations(design, [3, 1, 2])
    assert listed == [(1, "a", "x"), (1, "a", "y"), (2, "a", "x"), (3, "a", "x")]
    assert [*combined("product", factors)] == [*itertools.product(*factors)]


@pytest.mark.slow
def test_the_limit_counts_the_studies_there_are() -> None:
    arguments = [f"{{ema: {0.5 + i / 1000}}}" for i in range(400)]
    arguments += [f"{{clip: {1 + i}}}" for i in range(400)]
    text = FACTORS.replace("{clip: 1.0}, {ema: 0.9}", ", ".join(arguments))
    text = text.replace("[16, 64]", "1..1024")
    assert len(parse(text).combinations) == 1 + 800 + 4
    with pytest.raises(ExperimentError, match="the grid has 105,732 studies"):
        parse(text.replace("one_factor", "product"))


def test_another_design_is_an_error() -> None:
    with pytest.raises(ExperimentError, match=r"design 'factorial' is not one of"):
        parse(FACTORS.replace("one_factor", "factorial"))
