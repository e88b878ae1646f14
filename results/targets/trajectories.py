"""The evaluations of many trials, one whole trial at a time: memory holds a batch of rows at most.

As a commit writes them, the evaluations of a trial are contiguous. A first pass, over two columns,
counts the segments that they lie in (a user's file may alternate between runs); trials with several
are read again at the end, some hundred at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from results.schema import SCHEMAS
from results.storage import rows
from results.storage.dataset import reading
from results.storage.tables import Tables
from results.targets.evaluations import live

_TOGETHER = 500
"""Trials in several segments that are held in memory at a time."""


def segments(results: Tables) -> NDArray[np.int64]:
    """In how many segments the evaluations of each trial lie, 0 for a trial without; (n,).

    Raises:
        ResultsError: a broken file.
        FileNotFoundError: a file was removed since it was listed (``storage.dataset.retrying``).
    """
    trials = results.trial_rows["trial"].to_pylist()
    counts = np.zeros(len(trials), np.int64)
    last = -1
    files, runs = results.measured(coded=["trial", "run"])
    with reading(f"{results.root}/measurements"):
        batches = files.to_batches(columns=["trial", "run", "step"])
        for batch in live(batches, trials, runs.to_pylist(), None):
            np.add.at(counts, batch.trial, 1)
            counts[batch.trial[0]] -= batch.trial[0] == last
            last = int(batch.trial[-1])
    return counts


def trajectories(
    results: Tables, columns: Sequence[str], counts: NDArray[np.int64]
) -> Iterator[tuple[int, pa.Table]]:
    """Each trial that has evaluations, by its place among ``results.trial_rows``, with all of them
    by step.

    Args:
        counts: the ``segments`` of these trials.

    Raises:
        ResultsError: a broken file.
        FileNotFoundError: a file was removed since it was listed (``storage.dataset.retrying``).
    """
    names = results.trial_rows["trial"].to_pylist()
    places = {name: place for place, name in enumerate(names)}
    contiguous = {names[place]: place for place in np.flatnonzero(counts == 1).tolist()}
    parts: list[pa.Table] = []
    last = ""
    for name, part in _parts(results, columns):
        if name != last:
            if parts:
                yield contiguous.pop(last), _by_step(parts, columns)
            parts, last = [], name
        if name in contiguous:
            parts.append(part)
        elif counts[places[name]] == 1:
            raise FileNotFoundError(f"{results.root}/measurements changed while it was read")
    if parts:
        yield contiguous.pop(last), _by_step(parts, columns)
    scattered = np.flatnonzero(counts > 1)
    for start in range(0, len(scattered), _TOGETHER):
        yield from _scattered(results, columns, scattered[start : start + _TOGETHER])


def _parts(results: Tables, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Contiguous rows of one trial, with its name."""
    read = list(dict.fromkeys(["trial", "step", *columns]))
    files, runs = results.measured()
    belonging = rows.Live(results.trial_rows["trial"], runs)
    with reading(f"{results.root}/measurements"):
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
    results: Tables, columns: Sequence[str], places: NDArray[np.int64]
) -> Iterator[tuple[int, pa.Table]]:
    part = results.with_trials(results.trial_rows.take(pa.array(places)))
    pieces: dict[str, list[pa.Table]] = {}
    for name, piece in _parts(part, columns):
        pieces.setdefault(name, []).append(piece)
    for place, name in zip(places.tolist(), part.trial_rows["trial"].to_pylist(), strict=True):
        if name in pieces:
            yield place, _by_step(pieces.pop(name), columns)


def _by_step(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    whole = pa.concat_tables(parts)
    step = whole["step"].to_numpy()
    if (step[1:] < step[:-1]).any():
        whole = whole.take(pa.array(np.argsort(step, kind="stable")))
    schema = pa.schema([SCHEMAS["measurements"].field(name) for name in columns])
    return whole.select(list(columns)).cast(schema)
