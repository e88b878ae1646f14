"""Which studies their experiment, as it was last edited, still has."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def current(studies: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each of ``studies`` belongs to the last version of its experiment, (n,).

    Every sweep writes rows for all studies of the experiment file that it was given, unless they
    stand there with that text already: a study that was planned from another text than the
    experiment's newest row is one that the file has no more. What was not planned here is current.

    Args:
        studies: the latest row of each study, with the columns experiment, experiment_yaml, time.
    """
    text = studies["experiment_yaml"]
    ordered = studies[text.notna()].sort_values("time", kind="stable")
    newest = ordered.groupby("experiment")["experiment_yaml"].last()
    same = text.eq(studies["experiment"].map(newest))
    found: NDArray[np.bool_] = (text.isna() | same).to_numpy(dtype=bool)
    return found
