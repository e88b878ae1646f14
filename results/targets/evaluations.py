"""The looks of many trials, batch by batch: of any number of them a batch is held, no more.

looks = Looks([results.open("results/runs")])
for batch in looks.of(["a", "b"], "validation_error"): …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from results.dataset import reading
from results.schema import METRIC_COLUMNS
from results.targets.first_hits import Batch, column_of, live

if TYPE_CHECKING:
    from results.reader import Results


class Evaluations:
    """The measurements of one dataset or several, read again whenever they are asked for."""

    def __init__(self, sources: Sequence[Results]) -> None:
        self._sources = sources

    def has(self, metric: str) -> bool:
        """Whether a metric has a column of its own; others are in JSON text and slow to read."""
        return metric in METRIC_COLUMNS

    def of(self, trials: Sequence[str], metric: str | None = None) -> Iterator[Batch]:
        """The looks at ``trials``, by their places there, and with the values of ``metric``.

        Rows of other trials are left out. A look without a value is NaN.

        Raises:
            ResultsError: a broken file.
            FileNotFoundError: a file went away since it was listed: ask again
                (``results.dataset.retrying``).
        """
        wanted = pa.array(trials, pa.string())
        for source in self._sources:
            rows = source.trial_rows
            rows = rows.filter(pc.is_in(rows["trial"], wanted))
            if len(rows):
                yield from _of(source.with_trials(rows), trials, metric)


def _of(part: Results, trials: Sequence[str], metric: str | None) -> Iterator[Batch]:
    columns = ["trial", "run", "step", *([column_of(metric)] if metric else [])]
    files, runs = part.measured(coded=["trial", "run"])
    run_of = dict(zip(part.trial_rows["trial"].to_pylist(), runs.to_pylist(), strict=True))
    with reading(f"{part.root}/measurements"):
        batches = files.to_batches(columns=columns)
        yield from live(batches, trials, [run_of.get(name) for name in trials], metric)
