"""The looks of many trials, one whole trial at a time: no more than a batch of rows is held.

Written by a commit, the looks of a trial stand together. A first pass, over two columns, finds the
trials whose looks do not (a file of one's own may have a row a step, run beside run); those are
read again at the end, some hundred at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from results import rows
from results.dataset import reading
from results.schema import SCHEMAS
from results.targets.first_hits import live

if TYPE_CHECKING:
    from results.reader import Results

_TOGETHER = 500
"""Trials whose looks lie scattered that are held at a time."""


def stretches(found: Results) -> NDArray[np.int64]:
    """In how many stretches the looks of each of the trials lie, 0 for one without; (n,).

    Raises:
        ResultsError: a broken file.
        FileNotFoundError: a file went away since it was listed (``results.dataset.retrying``).
    """
    trials = found.trial_rows["trial"].to_pylist()
    count = np.zeros(len(trials), np.int64)
    last = -1
    files, runs = found.measured(coded=["trial", "run"])
    with reading(f"{found.root}/measurements"):
        batches = files.to_batches(columns=["trial", "run", "step"])
        for batch in live(batches, trials, runs.to_pylist(), None):
            np.add.at(count, batch.trial, 1)
            count[batch.trial[0]] -= batch.trial[0] == last
            last = int(batch.trial[-1])
    return count


def trajectories(
    found: Results, columns: Sequence[str], counted: NDArray[np.int64]
) -> Iterator[tuple[int, pa.Table]]:
    """Each trial that has looks, by its place among ``found.trial_rows``, with all of them by step.

    ``counted`` is what ``stretches`` found of these trials.

    Raises:
        ResultsError: a broken file.
        FileNotFoundError: a file went away since it was listed (``results.dataset.retrying``).
    """
    names = found.trial_rows["trial"].to_pylist()
    places = {name: place for place, name in enumerate(names)}
    together: dict[str | None, int] = {
        names[at]: at for at in np.flatnonzero(counted == 1).tolist()
    }
    held: list[pa.Table] = []
    last: str | None = None
    for name, part in _parts(found, columns):
        if name != last:
            if held:
                yield together.pop(last), _by_step(held, columns)
            held, last = [], name
        if name in together:
            held.append(part)
        elif counted[places[name]] == 1:
            raise FileNotFoundError(f"{found.root}/measurements: files moved while they were read")
    if held:
        yield together.pop(last), _by_step(held, columns)
    scattered = np.flatnonzero(counted > 1)
    for start in range(0, len(scattered), _TOGETHER):
        yield from _scattered(found, columns, scattered[start : start + _TOGETHER])


def _parts(found: Results, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Rows that stand together and are of one trial, with its name."""
    read = list(dict.fromkeys(["trial", "step", *columns]))
    files, runs = found.measured()
    belonging = rows.Live(found.trial_rows["trial"], runs)
    with reading(f"{found.root}/measurements"):
        for table in rows.kept(files, belonging, read):
            for batch in table.to_batches():
                encoded = batch["trial"].dictionary_encode()
                names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
                starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
                ends = np.append(starts[1:], len(codes))
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                    part = batch.slice(start, end - start)
                    yield names[codes[start]], pa.Table.from_batches([part])


def _scattered(
    found: Results, columns: Sequence[str], places: NDArray[np.int64]
) -> Iterator[tuple[int, pa.Table]]:
    some = found.with_trials(found.trial_rows.take(pa.array(places)))
    held: dict[str, list[pa.Table]] = {}
    for name, part in _parts(some, columns):
        held.setdefault(name, []).append(part)
    for place, name in zip(places.tolist(), some.trial_rows["trial"].to_pylist(), strict=True):
        if name in held:
            yield place, _by_step(held.pop(name), columns)


def _by_step(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    whole = pa.concat_tables(parts)
    step = whole["step"].to_numpy()
    if (step[1:] < step[:-1]).any():
        whole = whole.take(pa.array(np.argsort(step, kind="stable")))
    schema = pa.schema([SCHEMAS["measurements"].field(name) for name in columns])
    return whole.select(list(columns)).cast(schema)
