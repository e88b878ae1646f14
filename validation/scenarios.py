"""What is simulated: an entry here is a part of docs/findings/truth.md."""

from __future__ import annotations

from itertools import product

from analysis.fit.optimal_batch import optimal_batch
from validation import budgets, crossovers, searches, shapes, stopping, techniques, true_shapes
from validation.budgets import Budgets
from validation.crossovers import Pairs
from validation.harness import Scenario
from validation.searches import Searches
from validation.shapes import Cell
from validation.stopping import Stopping
from validation.surface import Surface
from validation.techniques import TechniqueTables


def nothing(_: object) -> None:
    """What is true is drawn with each replicate."""


DIMENSIONS = (1, 2, 3, 4)
NARROWING = 4 / 3
"""The bowl's w goes from 12 to 28."""
_BOWLS = ((2.0, NARROWING, 0.05), (2.0, NARROWING, 0.2), (1.0, NARROWING, 0.2),
          (4.0, NARROWING, 0.2), (2.0, 0.0, 0.2))  # fmt: skip
"""Power, narrowing, a seed's noise."""
_LAWS = (
    *product(("parabola", "valley"), (0.1, 0.3, 1.0), budgets.CHANGES, (0.0,)),
    *product(("parabola",), (0.1, 0.3), ("equal",), (0.3,)),
)
"""Surface, noise, its change over the budgets, how far optima lie off their law."""
_STOPPED = (
    (Surface(dimensions=1, noise=0.05), 1.3),
    (Surface(dimensions=1, noise=0.20), 1.3),
    (Surface(dimensions=2, noise=0.05), 1.3),
    (Surface(dimensions=2, noise=0.20), 1.5),
    (Surface(dimensions=3, noise=0.05), 2.0),
    (Surface(dimensions=1, noise=0.20, narrowing=NARROWING, power=1.0), 1.5),
    (Surface(dimensions=2, noise=0.05, narrowing=NARROWING, power=1.0), 1.5),
)

SCENARIOS = (
    Scenario(
        name="shapes",
        cells=tuple(
            Cell(shape=shape, noise=noise, design=design)
            for noise, design, shape in product(shapes.NOISES, shapes.DESIGNS, true_shapes.SHAPES)
        ),
        key=shapes.key,
        seed=shapes.seed,
        truth=shapes.true,
        simulate=shapes.simulate,
        estimate=shapes.located,
        count=shapes.count,
        replicates=100,
        tables=shapes.tables,
    ),
    Scenario(
        name="searches",
        cells=tuple(
            Searches(surface=Surface(dimensions=dimensions, noise=noise), trials=trials)
            for dimensions, trials, noise in product(DIMENSIONS[:3], (16, 64), (0.05, 0.20))
        ),
        key=searches.searches_key,
        seed=searches.searches_seed,
        truth=searches.truth,
        simulate=searches.simulate,
        estimate=searches.located,
        count=searches.count_searches,
        replicates=20,
        blocks=5,
        tables=searches.searches_tables,
    ),
    Scenario(
        name="limits",
        cells=tuple(
            Searches(
                surface=Surface(dimensions=d, noise=noise, narrowing=narrowing, power=power),
                trials=64,
                multiple=30.0,  # the best of 64 in four dimensions takes up to five times S(B)
                described=True,
            )
            for power, narrowing, noise in _BOWLS
            for d in DIMENSIONS
        ),
        key=searches.limits_key,
        seed=searches.limits_seed,
        truth=searches.loss,
        simulate=searches.simulate,
        estimate=searches.limit,
        count=searches.count_limits,
        replicates=20,
        blocks=5,
        tables=searches.limits_tables,
    ),
    Scenario(
        name="stopping",
        cells=tuple(Stopping(surface=surface, factor=factor) for surface, factor in _STOPPED),
        key=stopping.key,
        seed=stopping.seed,
        truth=stopping.truth,
        simulate=stopping.simulate,
        estimate=stopping.ended,
        count=stopping.count,
        replicates=40,
        blocks=2,
        tables=stopping.tables,
    ),
    Scenario(
        name="crossovers",
        cells=tuple(
            Pairs(kind=kind, noise=noise)
            for kind, noise in product(crossovers.KINDS, (0.02, 0.05, 0.10))
        ),
        key=crossovers.key,
        seed=crossovers.seed,
        truth=nothing,
        simulate=crossovers.simulate,
        estimate=crossovers.compared,
        count=crossovers.count,
        replicates=200,
        tables=crossovers.tables,
    ),
    Scenario(
        name="techniques",
        cells=tuple(
            TechniqueTables(kind=kind, noise=noise)
            for kind, noise in product(techniques.KINDS, (0.03, 0.10))
        ),
        key=techniques.key,
        seed=techniques.seed,
        truth=techniques.true_ratios,
        simulate=techniques.simulate,
        estimate=techniques.p_values_of,
        count=techniques.count,
        replicates=100,
        tables=techniques.tables,
    ),
    Scenario(
        name="budgets",
        cells=tuple(
            Budgets(number=number, shape=shape, noise=noise, change=change, scatter=scatter)
            for number, (shape, noise, change, scatter) in enumerate(_LAWS)
        ),
        key=budgets.key,
        seed=budgets.seed,
        truth=nothing,
        simulate=budgets.simulate,
        estimate=optimal_batch,
        count=budgets.count,
        replicates=15,
        blocks=2,
        tables=budgets.tables,
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
