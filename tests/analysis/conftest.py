"""Synthetic trials of a search whose best steps to target follow a known knee."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, Point
from analysis.figure_data import FigureData
from analysis.fit.knee import log_steps, theta
from tests.reported import study_row

SPACE = json.dumps({"learning_rate": {"log": [1e-3, 10.0]}})


def looks(ratio: float = 1.05, count: int = 400) -> np.ndarray:
    """A geometric evaluation grid of whole steps."""
    return np.unique(np.ceil(np.cumprod(np.full(count, ratio))))


SIZES = tuple(2**i for i in range(11))


def search(
    optimizer: str = "sgd",
    *,
    params: np.ndarray | None = None,
    sizes: tuple[int, ...] = SIZES,
    n: int = 16,
    noise: float = 0.03,
    keep: int | None = 4,
    ratio: float = 1.05,
    seed: int = 0,
    **columns: object,
) -> pd.DataFrame:
    """Trials rows of one study a batch size; the rest of the table is left out (null)."""
    rng = np.random.default_rng(seed)
    params = theta(60.0, 50.0) if params is None else params
    grid, rows = looks(ratio), []
    for size in sizes:
        best = np.exp(log_steps(np.log([size]), params)[0] + rng.normal(0, noise))
        rates = np.exp(rng.uniform(np.log(1e-3), np.log(10), n))
        steps = best * np.exp(np.abs(np.log(rates / 0.1)) * 0.4)
        at = np.searchsorted(grid, steps)
        exact = np.inf if keep is None else np.sort(grid[at])[keep - 1]
        for i in range(n):
            hit = grid[at[i]] <= exact
            rows.append(
                {
                    "experiment": "e",
                    **study_row(optimizer, size),
                    "trial": f"{optimizer}-{size}-{i}",
                    "index": i,
                    "role": "search",
                    "status": "COMPLETE" if hit else "INCOMPLETE",
                    "stop_reason": "target" if hit else "dominated",
                    "learning_rate": rates[i],
                    "effective_learning_rate": rates[i],
                    "metaparameters": json.dumps({"learning_rate": rates[i]}),
                    "target_metric": "validation_error",
                    "target_value": 0.04,
                    "lower_is_better": True,
                    "steps_to_target": grid[at[i]] if hit else np.nan,
                    "last_miss": (grid[at[i] - 1] if at[i] else 0.0) if hit else np.nan,
                    "steps_run": grid[at[i]] if hit else exact + 1,
                    "keep": keep,
                    "evaluation_ratio": ratio,
                    "budget_steps": 100_000,
                    **columns,
                }
            )
    return pd.DataFrame(rows)


def studies_of(trials: pd.DataFrame) -> pd.DataFrame:
    columns = ["study", "workload", "dataset", "optimizer", "schedule", "batch_size"]
    return trials[columns].drop_duplicates().assign(search_space=SPACE, dimensions=1)


def plain_curve(
    sizes: np.ndarray | list[float], steps: np.ndarray | list[float], **fields: object
) -> Curve:
    """A curve of best steps, one a batch size (repeated sizes are repeated runs)."""
    points = []
    for size in sorted(set(sizes)):
        here = [float(s) for b, s in zip(sizes, steps, strict=True) if b == size]
        points.append(Point(
            batch_size=int(size), steps=float(np.median(here)), trials=len(here),
            middles=tuple(here), runs=tuple(here) if len(here) > 1 else (),
        ))  # fmt: skip
    given: dict[str, Any] = {"group": {"optimizer": "sgd"}, "label": "sgd", "target": None}
    given |= {"points": tuple(points), "trials": 1}
    return Curve(**{**given, **fields})


@pytest.fixture(name="search", scope="session")
def _search() -> Callable[..., pd.DataFrame]:
    return search


@pytest.fixture(name="studies_of", scope="session")
def _studies_of() -> Callable[[pd.DataFrame], pd.DataFrame]:
    return studies_of


@pytest.fixture(name="plain_curve", scope="session")
def _plain_curve() -> Callable[..., Curve]:
    return plain_curve


@pytest.fixture(name="looks", scope="session")
def _looks() -> Callable[..., np.ndarray]:
    return looks


@pytest.fixture(scope="session")
def paper_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with something for every figure of the paper; read only."""
    from tests.analysis import gallery

    return gallery.write(tmp_path_factory.mktemp("paper") / "runs")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    """A few curves of which all that is drawn was measured; read only."""
    from tests.analysis.measured import measured

    return measured(tmp_path_factory.mktemp("small") / "runs")


@pytest.fixture
def closed_figures() -> Iterator[None]:
    """Figures drawn without a screen, and closed after the test."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    yield
    plt.close("all")
