"""Which studies are current, and which trials belong to a search.

A study is current while the last version of its experiment has it. A search is a space, a method,
and the seed of its table.

A study may be searched several times. A trial belongs to the search that drew it
(``search_id``, ``search_seed``) and to those that drew the very same trial later
(``other_searches``); one written before searches had an id belongs to no named one.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from results.storage.rows import by_age

PART = "# a part of the grid: the other studies of the experiment are as they were"
"""The first line of the ``experiment_yaml`` of a sweep whose grid ``--set`` has changed."""


def current(studies: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each of ``studies`` belongs to the last version of its experiment, (n,).

    Every sweep writes rows for all studies of its experiment file, unless there are rows with that
    text already: a study planned from another text than that of the experiment's newest row is no
    longer in the file. Sweeps of a ``PART`` say nothing of other studies, and theirs are current
    until the file is swept in a later form. A study that was not planned here is current.

    Args:
        studies: the latest row of each study, with the columns experiment, experiment_yaml,
            revision, time.
    """
    studies = studies.reset_index(drop=True)
    text = studies["experiment_yaml"]
    part = text.astype(object).map(lambda each: str(each).startswith(PART)).astype(bool)
    studies["age"] = pd.Series(range(len(studies)), by_age(studies).index)
    newest = studies[text.notna() & ~part].sort_values("age").groupby("experiment").last()
    newest = newest.reindex(studies["experiment"]).set_index(studies.index)
    same = text.eq(newest["experiment_yaml"])
    later = part & ~(studies["age"] < newest["age"])
    return (text.isna() | same | later).to_numpy(dtype=bool)


def belongs(trials: pd.DataFrame, search: Any, seed: Any = None) -> NDArray[np.bool_]:
    """Whether each of ``trials`` belongs to a search, (n,).

    Args:
        trials: with the columns search_id, search_seed and other_searches.
        search: its id; any null for trials without one.
        seed: of its table; any null for all of them.
    """
    drawn: NDArray[np.bool_]
    if not isinstance(search, str):
        drawn = trials["search_id"].isna().to_numpy()
    else:
        drawn = trials["search_id"].eq(search).to_numpy(dtype=bool, na_value=False)
    if not pd.isna(seed):
        seeds = trials["search_seed"]
        drawn = drawn & (seeds.isna() | seeds.eq(seed)).to_numpy(dtype=bool, na_value=True)
    if not isinstance(search, str):
        return drawn
    others = trials["other_searches"].astype(object)
    return drawn | others.map(lambda text: search in rows_of(text)).to_numpy(dtype=bool)


def rows_of(others: Any) -> dict[str, int]:
    """``other_searches`` of a trial: the row that it is of each search's table."""
    return json.loads(others) if isinstance(others, str) and others else {}
