"""What each layout communicates in a step is counted, and equals its formula in docs/layouts.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.engines.module import ModuleEngine
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Study, WorkloadRef
from experiments.training.study_context import StudyContext
from tests.conformance.test_ranks import FOUR, TWO
from tests.experiments.communication import Communication
from tests.experiments.rank_groups import on_ranks
from tests.problems import study, trials

PAGE = Path(__file__).parents[2] / "docs" / "layouts.md"
FIELDS = {"layers": 2, "width": 64, "heads": 4, "context": 64}
VOCABULARY = 256
"""Bytes."""
BATCH = 32


def transformer(**changes: int) -> Study:
    """The one of the page; SGD needs no parameter whole."""
    fields = {**FIELDS, "validation_tokens": 64, **changes}
    return study(
        workload=WorkloadRef(spec="lm-transformer", fields=fields),
        target="validation_cross_entropy < 1",
        batch_size=BATCH,
    )


class Sizes:
    """Bytes of a Transformer's parameters and activations, by the letters of the page."""

    def __init__(self, fields: dict[str, int], batch: int, data: int, tensor: int) -> None:
        w, layers = fields["width"], fields["layers"]
        cut = layers * (12 * w * w + 7 * w)  # the biases of layers that are cut by outputs
        norms, biases = layers * 4 * w, layers * 2 * w  # of layers that are cut by inputs
        whole = norms + biases + VOCABULARY * w + fields["context"] * w + 2 * w
        self.P = 4 * (cut + whole)
        self.R = 4 * (cut / tensor + whole)
        self.A = 4 * batch / data * fields["context"] * w
        self.N = 4 * norms
        self.L = layers
        self.F = 4 * (12 * layers + 4) + 8


FORMULAS: dict[str, tuple[Mapping[str, int], int, Callable[[Sizes], float]]] = {
    "`{data: 2}`": (TWO["data"], 2, lambda s: 2 * (s.P + s.F) / 2),
    "`{shard: 2}`": (TWO["shard"], 2, lambda s: 3 * s.P / 2),
    "`{shard: 2, zero2: true}`": (TWO["zero2"], 2, lambda s: 2 * s.P / 2),
    "`{tensor: 2}`": (TWO["tensor"], 2, lambda s: 8 * s.L * s.A / 2),
    "`{tensor: 2, sequence: true}`": (
        TWO["sequence"],
        2,
        lambda s: (8 * s.L + 2) * s.A / 2 + 2 * s.N / 2,
    ),
    "`{data: 2, tensor: 2}`": (FOUR["data × tensor"], 4, lambda s: 8 * s.L * s.A / 2 + 2 * s.R / 2),
    "`{shard: 2, tensor: 2}`": (
        FOUR["shard × tensor"],
        4,
        lambda s: 8 * s.L * s.A / 2 + 3 * s.R / 2,
    ),
    "`{data: 2, shard: 2}`": (FOUR["data × shard"], 4, lambda s: 3 * s.P / 2 + 2 * (s.P / 2) / 2),
}


def expected(name: str) -> float:
    dimensions, ranks, formula = FORMULAS[name]
    tensor = dimensions.get("tensor", 1)
    return formula(Sizes(FIELDS, BATCH, data=ranks // tensor, tensor=tensor))


def sent_in_a_step(ranks: Ranks, of: Study, dimensions: Mapping[str, int], steps: int) -> float:
    layout = replace(of.layout, workers=ranks.size, dimensions=(*dimensions.items(),))
    context = StudyContext.load(replace(of, layout=layout), ranks=ranks)
    engine = ModuleEngine(context, trials(of, 1))
    engine.advance(1)
    with Communication() as counted:
        engine.advance(steps)
    return counted.bytes / steps


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_what_layouts_communicate_is_what_their_formulas_say(size: int, tmp_path: Path) -> None:
    names = [name for name, (_, ranks, _) in FORMULAS.items() if ranks == size]
    jobs = [(transformer(), FORMULAS[name][0], 2) for name in names]
    ranks = on_ranks(size, sent_in_a_step, jobs, tmp_path)
    for rank in ranks:
        assert dict(zip(names, rank, strict=True)) == {name: expected(name) for name in names}


def test_the_page_has_these_numbers() -> None:
    rows = re.findall(r"^\| (`\{.*?\}`) \| .* \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name: int(value.replace(",", "")) for name, value in rows} == {
        name: round(expected(name)) for name in FORMULAS
    }


def test_a_single_worker_communicates_nothing() -> None:
    assert sent_in_a_step(SOLO, transformer(layers=1), {}, 1) == 0
